#include "standin.h"
#include "../yield.h"
#include <stddef.h>

int64_t standin_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

void standin_turn(int64_t n)
{
	for (int64_t k = 0; k < n; k++)
		__asm__ volatile("" ::: "memory");
}

int64_t standin_spin(int64_t turns)
{
	int64_t start = standin_now();

	standin_turn(turns);
	return standin_now() - start;
}

int standin_left_out(int before) { return gv_left_out(before); }

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct standin *s = (struct standin *)((char *)qp - offsetof(struct standin, qp));

	s->posted = wr;
	if (s->fail_at < 0)
		return 0;
	for (int i = 0; wr; wr = wr->next, i++)
		if (i == s->fail_at) {
			*bad = wr;
			return s->fail_errno;
		}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct standin *s = (struct standin *)((char *)qp - offsetof(struct standin, qp));

	if (s->fail_at < 0)
		return 0;
	for (int i = 0; wr; wr = wr->next, i++)
		if (i == s->fail_at) {
			*bad = wr;
			return s->fail_errno;
		}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct standin *s = (struct standin *)((char *)cq - offsetof(struct standin, cq));

	if (s->named)
		for (int i = 0; i < n; i++)
			wc[i].wr_id = s->posted[i].wr_id;
	return s->poll_error ? s->poll_error : n;
}

struct standin *standin_new(void)
{
	struct standin *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->ctx.ops.post_send = post_send;
	s->ctx.ops.post_recv = post_recv;
	s->ctx.ops.poll_cq = poll_cq;
	s->qp.context = &s->ctx;
	s->cq.context = &s->ctx;
	s->fail_at = -1;
	return s;
}

static struct standin_cq *cq_of(struct ibv_cq_ex *x) { return (struct standin_cq *)((char *)x - offsetof(struct standin_cq, cq)); }

static int next_poll(struct ibv_cq_ex *x)
{
	struct standin_cq *c = cq_of(x);

	c->bad += !c->polling;
	if (!c->left)
		return c->err;
	x->wr_id = c->left--;
	return 0;
}

/* A poll that did not start is not ended. */
static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr)
{
	struct standin_cq *c = cq_of(x);
	int err;

	(void)attr;
	c->bad += c->polling;
	c->polling = 1;
	err = next_poll(x);
	if (err)
		c->polling = 0;
	return err;
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct standin_cq *c = cq_of(x);

	c->bad += !c->polling;
	c->polling = 0;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *x)
{
	(void)x;
	return IBV_WC_RDMA_READ;
}

static uint32_t read_number(struct ibv_cq_ex *x)
{
	(void)x;
	return 7;
}

static unsigned int read_flags(struct ibv_cq_ex *x)
{
	(void)x;
	return 0;
}

struct standin_cq *standin_cq_new(int left, int err)
{
	struct standin_cq *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->left = left;
	c->err = err;
	c->cq.start_poll = start_poll;
	c->cq.next_poll = next_poll;
	c->cq.end_poll = end_poll;
	c->cq.read_opcode = read_opcode;
	c->cq.read_qp_num = read_number;
	c->cq.read_byte_len = read_number;
	c->cq.read_wc_flags = read_flags;
	return c;
}

int64_t standin_post_poll(struct standin *s, int rounds, int batch)
{
	struct ibv_send_wr *wr = calloc(batch, sizeof(*wr));
	struct ibv_sge *sge = calloc(batch, sizeof(*sge));
	struct ibv_wc *wc = calloc(batch, sizeof(*wc));
	int64_t start, took = -1;

	if (!wr || !sge || !wc)
		goto out;
	for (int i = 0; i < batch; i++) {
		wr[i].sg_list = &sge[i];
		wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
	}
	start = standin_now();
	for (int r = 0; r < rounds; r++) {
		struct ibv_send_wr *bad;
		int got;

		for (int i = 0; i < batch; i++) {
			sge[i].addr = 0x1000 + 64 * i;
			sge[i].length = 64;
			sge[i].lkey = 7;
			wr[i].wr_id = i;
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = 0x2000 + 64 * i;
			wr[i].wr.rdma.rkey = 9;
		}
		if (ibv_post_send(&s->qp, wr, &bad))
			goto out;
		got = ibv_poll_cq(&s->cq, batch, wc);
		for (int i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				goto out;
	}
	took = standin_now() - start;
out:
	free(wr);
	free(sge);
	free(wc);
	return took;
}

int standin_read_loop(uintptr_t qp, uintptr_t cq, uint64_t addr, uint32_t length, uint32_t lkey, uint64_t raddr,
		      uint32_t rkey, int extra, int64_t *lat, int n)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = raddr, .rkey = rkey },
	};
	int64_t before = standin_now();

	for (int i = 0; i < n; i++) {
		struct ibv_send_wr *bad;
		struct ibv_wc wc;
		int64_t after;
		int got;

		standin_turn(extra);
		wr.wr_id = i;
		if (ibv_post_send((struct ibv_qp *)qp, &wr, &bad))
			return -1;
		while (!(got = ibv_poll_cq((struct ibv_cq *)cq, 1, &wc)))
			;
		if (got < 0 || wc.status != IBV_WC_SUCCESS)
			return -1;
		after = standin_now();
		lat[i] = after - before;
		before = after;
	}
	return 0;
}
