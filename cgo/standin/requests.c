#include "requests.h"
#include "standin.h"
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

enum { MOST = 64, GRH = 40, LONG = 10000 /* ms */ };

/* Polls until n requests have completed. */
static int await(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc[2];

	while (n > 0) {
		int got = ibv_poll_cq(cq, n < 2 ? n : 2, wc);

		for (int i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				return -1;
		if (got < 0)
			return -1;
		n -= got;
	}
	return 0;
}

/* Posts a list, of which one request is signaled, and polls until that has completed. */
static int perform(uintptr_t qp, uintptr_t cq, struct ibv_send_wr *list)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send((struct ibv_qp *)qp, list, &bad))
		return -1;
	return await((struct ibv_cq *)cq, 1);
}

int64_t standin_reads(const struct standin_requester *r, uint32_t length, int list, int extra, int lists)
{
	struct ibv_send_wr wr[MOST] = {};
	struct ibv_sge sge[MOST];
	int64_t start;

	if (list > MOST)
		return -1;
	start = standin_now();
	for (int n = 0; n < lists; n++) {
		for (int i = 0; i < list; i++) {
			sge[i] = (struct ibv_sge){ r->addr + i * length, length, r->lkey };
			wr[i].wr_id = i;
			wr[i].next = i + 1 < list ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_READ;
			wr[i].send_flags = i + 1 < list ? 0 : IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = r->raddr + i * length;
			wr[i].wr.rdma.rkey = r->rkey;
		}
		standin_turn(extra);
		if (perform(r->qp, r->cq, wr))
			return -1;
	}
	return standin_now() - start;
}

int standin_read(const struct standin_requester *r, uint32_t length)
{
	struct ibv_sge sge = { r->addr, length, r->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { r->raddr, r->rkey } };

	return perform(r->qp, r->cq, &wr);
}

int64_t standin_updates(const struct standin_requester *r, uint32_t length, int n)
{
	const uint64_t *lock = (const uint64_t *)r->addr;
	struct ibv_sge word = { r->addr, 8, r->lkey }, record = { r->addr + 8, length, r->lkey };
	struct ibv_send_wr acquire = { .sg_list = &word, .num_sge = 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = { .remote_addr = r->raddr, .rkey = r->rkey, .compare_add = 0, .swap = 1 } };
	struct ibv_send_wr read = { .sg_list = &record, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { r->raddr + 8, r->rkey } };
	struct ibv_send_wr write = read, release = acquire;
	int64_t start = standin_now();

	acquire.next = &read;
	write.opcode = IBV_WR_RDMA_WRITE;
	write.send_flags = 0;
	write.next = &release;
	release.send_flags = IBV_SEND_SIGNALED;
	release.wr.atomic.compare_add = 1;
	release.wr.atomic.swap = 0;
	for (int i = 0; i < n; i++) {
		if (perform(r->qp, r->cq, &acquire) || *lock != 0)
			return -1;
		(*(uint64_t *)(r->addr + 8))++;
		if (perform(r->qp, r->cq, &write) || *lock != 1)
			return -1;
	}
	return standin_now() - start;
}

static int receive(const struct standin_datagrams *e, uint32_t length)
{
	struct ibv_sge sge = { e->addr, GRH + length, e->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv((struct ibv_qp *)e->qp, &wr, &bad);
}

static struct ibv_ah *way(uintptr_t qp, uint8_t index, const uint8_t gid[16])
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = index, .hop_limit = 64 } };

	memcpy(&attr.grh.dgid, gid, 16);
	return ibv_create_ah(((struct ibv_qp *)qp)->pd, &attr);
}

/* libmlx5 is not linked: see driver.h. */
static struct mlx5dv_qp_ex *mlx5_qp(struct ibv_qp_ex *qp)
{
	typedef struct mlx5dv_qp_ex *from(struct ibv_qp_ex *);
	void *library = dlopen("libmlx5.so.1", RTLD_LAZY);
	from *call = library ? (from *)dlsym(library, "mlx5dv_qp_ex_from_ibv_qp_ex") : NULL;

	return call ? call(qp) : NULL;
}

int64_t standin_dct_reads(const struct standin_requester *r, const struct standin_dct *to, uint32_t length, int n)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex((struct ibv_qp *)r->qp);
	struct mlx5dv_qp_ex *m = mlx5_qp(qp);
	struct ibv_ah *ah = m ? way(r->qp, to->index, to->gid) : NULL;
	int64_t start = standin_now(), took = -1;

	if (!ah)
		return -1;
	for (int i = 0; i < n; i++) {
		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_read(qp, r->rkey, r->raddr);
		ibv_wr_set_sge(qp, r->lkey, r->addr, length);
		mlx5dv_wr_set_dc_addr(m, ah, to->number, to->key);
		if (ibv_wr_complete(qp) || await((struct ibv_cq *)r->cq, 1))
			goto out;
	}
	took = standin_now() - start;
out:
	ibv_destroy_ah(ah);
	return took;
}

/* What an end of a ping-pong sends. */
struct ping {
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

static int ping(struct ping *p, const struct standin_datagrams *from, const struct standin_datagrams *to, uint32_t length)
{
	p->sge = (struct ibv_sge){ from->addr + GRH + length, length, from->lkey };
	p->wr = (struct ibv_send_wr){ .sg_list = &p->sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	p->wr.wr.ud.ah = way(from->qp, from->index, to->gid);
	p->wr.wr.ud.remote_qpn = ((struct ibv_qp *)to->qp)->qp_num;
	p->wr.wr.ud.remote_qkey = to->qkey;
	return p->wr.wr.ud.ah ? 0 : -1;
}

static void pinged(struct ping *p)
{
	if (p->wr.wr.ud.ah)
		ibv_destroy_ah(p->wr.wr.ud.ah);
}

int64_t standin_pingpong(const struct standin_datagrams *a, const struct standin_datagrams *b, uint32_t length, int n)
{
	const struct standin_datagrams *ends[] = { a, b };
	struct ping pings[2] = {};
	int64_t start, took = -1;

	if (ping(&pings[0], a, b, length) || ping(&pings[1], b, a, length))
		goto out;
	start = standin_now();
	for (int i = 0; i < 2 * n; i++) {
		const struct standin_datagrams *from = ends[i & 1], *to = ends[!(i & 1)];

		if (receive(to, length) || perform(from->qp, from->cq, &pings[i & 1].wr) || await((struct ibv_cq *)to->cq, 1))
			goto out;
	}
	took = standin_now() - start;
out:
	pinged(&pings[0]);
	pinged(&pings[1]);
	return took;
}

/* Waits for events of the queue until a message was received. */
static int hear(const struct standin_datagrams *e)
{
	struct ibv_cq *cq = (struct ibv_cq *)e->cq, *same;
	struct pollfd fd = { .fd = cq->channel->fd, .events = POLLIN };
	struct ibv_wc wc;
	void *context;

	for (bool asked = false;;) {
		int got = ibv_poll_cq(cq, 1, &wc);

		if (got < 0 || (got && wc.status != IBV_WC_SUCCESS))
			return -1;
		if (got && wc.opcode == IBV_WC_RECV)
			return 0;
		if (got)
			continue;
		if (!asked) {
			asked = true;
			if (ibv_req_notify_cq(cq, 0))
				return -1;
			continue;
		}
		if (poll(&fd, 1, LONG) != 1 || ibv_get_cq_event(cq->channel, &same, &context))
			return -1;
		ibv_ack_cq_events(cq, 1);
		asked = false;
	}
}

struct echo {
	const struct standin_datagrams *end;
	struct ping ping;
	uint32_t length;
	int n;
	bool failed;
};

static void *echo(void *arg)
{
	struct echo *e = arg;
	struct ibv_send_wr *bad;

	for (int i = 0; i < e->n && !e->failed; i++)
		e->failed = hear(e->end) || (i + 1 < e->n && receive(e->end, e->length)) || ibv_post_send((struct ibv_qp *)e->end->qp, &e->ping.wr, &bad);
	return NULL;
}

int64_t standin_waited_pingpong(const struct standin_datagrams *a, const struct standin_datagrams *b, uint32_t length, int n)
{
	struct echo e = { .end = b, .length = length, .n = n };
	struct ibv_send_wr *bad;
	struct ping out = {};
	pthread_t thread;
	int64_t start, took = -1;
	bool failed = false;

	if (ping(&out, a, b, length) || ping(&e.ping, b, a, length) || receive(b, length) || pthread_create(&thread, NULL, echo, &e))
		goto out;
	start = standin_now();
	for (int i = 0; i < n && !failed; i++)
		failed = receive(a, length) || ibv_post_send((struct ibv_qp *)a->qp, &out.wr, &bad) || hear(a);
	took = standin_now() - start;
	pthread_join(thread, NULL);
	if (failed || e.failed)
		took = -1;
out:
	pinged(&out);
	pinged(&e.ping);
	return took;
}
