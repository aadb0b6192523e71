/* What programs of the tests have on a device: a queue pair and registered memory. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno)); exit(1); } } while (0)

enum { BYTES = 1 << 20 };

/* What peers tell each other. */
struct address { union ibv_gid gid; uint32_t qpn, rkey; uint64_t at; };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory;
	struct address self, peer;
	struct ibv_context_ops library; /* its calls, before devices watch them */
};

static void make(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ };

	CHECK(list && list[0]);
	CHECK(s->ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(s->pd = ibv_alloc_pd(s->ctx));
	CHECK(s->channel = ibv_create_comp_channel(s->ctx));
	CHECK(s->cq = ibv_create_cq(s->ctx, 1024, NULL, s->channel, 0));
	CHECK(s->memory = aligned_alloc(4096, BYTES));
	memset(s->memory, 0, BYTES);
	CHECK(s->mr = ibv_reg_mr(s->pd, s->memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
	s->library = s->ctx->ops;
	init.send_cq = init.recv_cq = s->cq;
	init.pd = s->pd;
	CHECK(s->qp = ibv_create_qp_ex(s->ctx, &init));
	CHECK(!ibv_query_gid(s->ctx, 1, 3, &s->self.gid));
	s->self.qpn = s->qp->qp_num;
	s->self.rkey = s->mr->rkey;
	s->self.at = (uintptr_t)s->memory;
}

static void connect_to(struct side *s, const struct address *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	s->peer = *peer;
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = peer->gid, .sgid_index = 3, .hop_limit = 1 }, .port_num = 1 } };
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 15 /* 134 ms: a test may wait for a CPU */, .retry_cnt = 3, .rnr_retry = 7, .max_rd_atomic = 16 };
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}
