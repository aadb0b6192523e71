/*
 * A program that forks and executes itself while it has a device open: parent, child
 * and successor each have devices of their own, and those of the parent go on.
 * Closing a context with everything in it open leaves nothing behind.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "fork.c:%d: %s\n", __LINE__, #what); exit(1); } } while (0)

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *memory;
};

/* A queue pair that is connected to itself. */
static void make(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	union ibv_gid gid;

	CHECK(list && list[0]);
	CHECK(s->ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(s->pd = ibv_alloc_pd(s->ctx));
	CHECK(s->cq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0));
	CHECK(s->memory = aligned_alloc(4096, 8192));
	CHECK(s->mr = ibv_reg_mr(s->pd, s->memory, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	init.send_cq = init.recv_cq = s->cq;
	CHECK(s->qp = ibv_create_qp(s->pd, &init));
	CHECK(!ibv_query_gid(s->ctx, 1, 1, &gid));
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = s->qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 1 }, .port_num = 1 } };
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void use(struct side *s, char c)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, 4096, s->mr->lkey };
	struct ibv_send_wr *bad, w = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)s->memory + 4096, s->mr->rkey } };
	struct ibv_wc wc;
	time_t end = time(NULL) + 10;
	int n;

	memset(s->memory, c, 4096);
	CHECK(!ibv_post_send(s->qp, &w, &bad));
	while (!(n = ibv_poll_cq(s->cq, 1, &wc)))
		CHECK(time(NULL) < end);
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!memcmp(s->memory, s->memory + 4096, 4096));
}

static void unmake(struct side *s)
{
	CHECK(!ibv_destroy_qp(s->qp));
	CHECK(!ibv_dereg_mr(s->mr));
	CHECK(!ibv_destroy_cq(s->cq));
	CHECK(!ibv_dealloc_pd(s->pd));
	CHECK(!ibv_close_device(s->ctx));
	free(s->memory);
}

static void leave_open(void)
{
	for (int i = 0; i < 20; i++) {
		struct side s;

		make(&s);
		use(&s, 'o');
		CHECK(!ibv_close_device(s.ctx)); /* with all that is in it */
	}
}

/*
 * What a child closes is its own, even while it has all memory in common with its
 * parent (vfork).
 */
static void close_in_children(struct side *s)
{
	for (int i = 0; i < 3; i++) {
		pid_t child = i == 0 ? vfork() : i == 1 ? fork() : (pid_t)syscall(SYS_fork); /* the last one unnoticed by the C library */
		int status;

		CHECK(child >= 0);
		if (!child) {
			close(s->ctx->async_fd);
			close(s->ctx->cmd_fd);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && !status);
		use(s, 'v');
	}
}

int main(int argc, char **argv)
{
	struct side s, t;
	int status;

	if (argc > 1) { /* the successor */
		make(&s);
		use(&s, 's');
		unmake(&s);
		return 0;
	}
	make(&s);
	use(&s, 'a');
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			make(&t);
			use(&t, 'c');
			if (i % 2)
				unmake(&t);
			if (i % 3 == 0)
				execl("/proc/self/exe", argv[0], "successor", NULL);
			exit(i % 3 == 0);
		}
		use(&s, 'p');
		CHECK(waitpid(child, &status, 0) == child && !status);
		use(&s, 'q');
	}
	close_in_children(&s);
	leave_open();
	use(&s, 'z');
	unmake(&s);
	return 0;
}
