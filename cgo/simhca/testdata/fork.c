/*
 * A program that forks and executes itself while it has a device open: parent, child
 * and successor each have devices of their own, and those of the parent go on.
 * Closing a context with everything in it open leaves nothing behind.
 */
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

/* A queue pair that is connected to itself. */
static void make_own(struct side *s)
{
	make(s);
	connect_to(s, &s->self);
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

		make_own(&s);
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
		make_own(&s);
		use(&s, 's');
		unmake(&s);
		return 0;
	}
	make_own(&s);
	use(&s, 'a');
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			make_own(&t);
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
