//go:build linux && cgo

/*
 * The stand-in's queue pairs. They are as strict as the strictest of rdma-core's
 * providers, named at each rule (sources of rdma-core 44 to 64):
 *
 * - An operation that was not asked for has no pointer (efa_qp_fill_wr_pfns in
 *   providers/efa/verbs.c, rxe's set_qp_send_ops).
 * - A queue has room for as many requests as it was made for. What is done with
 *   a full one of mlx5 falls on the newest request that is in it, and the trace
 *   says so: _common_wqe_init_op in providers/mlx5/qp.c returns before it moves
 *   cur_ctrl, and the setters go on.
 * - A request needs all its setters (WQE_REQ_SETTERS_UD_XRC_DC).
 * - EFA takes requests in RTS and SQD alone, signaled, and with no flag but
 *   INLINE beside that (efa_post_send_validate).
 * - A DCT knows INIT and RTR alone (mlx5_ib_modify_dct in the kernel).
 * - A frame that is sent has at least its Ethernet header, 18 bytes with a tag
 *   (copy_eth_inline_headers in providers/mlx5/qp.c).
 *
 * What is posted to a queue pair in error is flushed; tests say how the rest ends.
 */
#include "queues.h"
#include "../extended.h"
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define note recorder_note
#define COMPLETIONS 256

struct request {
	uint64_t id;
	int done;
};

struct fake {
	struct ibv_qp_ex ex;
	struct mlx5dv_qp_ex dv;
	struct fake *next;
	enum standin_rules rules;
	int dct;
	enum ibv_qp_state device; /* what the device tells, where it differs */
	struct ibv_qp_cap cap;
	int sig_all;

	struct request *ring; /* of cap.max_send_wr */
	uint64_t head, tail;  /* requests that were posted, and that have completed */
	unsigned begun;       /* since wr_start */
	int setters;          /* that the newest one still needs */
	int err;
};

struct fake_cq {
	struct ibv_cq_ex ex; /* begins as struct ibv_cq does */
	struct efadv_cq dv;
	struct ibv_wc now; /* of an extended queue: what is being read */
	union ibv_gid sender;
	struct ibv_wc wcs[COMPLETIONS];
	union ibv_gid senders[COMPLETIONS];
	unsigned head, n;
};

size_t standin_flush_at;
static struct fake *qps;
static uint32_t numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* completions against polls */

static struct fake *of(struct ibv_qp_ex *x) { return (struct fake *)((char *)x - offsetof(struct fake, ex)); }

static struct fake *of_dv(struct mlx5dv_qp_ex *m) { return (struct fake *)((char *)m - offsetof(struct fake, dv)); }

static struct fake *find(uint32_t qpn)
{
	struct fake *f = qps;

	while (f && f->ex.qp_base.qp_num != qpn)
		f = f->next;
	return f;
}

/*
 * What the provider does when a completion is polled. mlx5 takes all up to that
 * request to have completed and all behind it not (mlx5_parse_cqe), whatever it
 * knew before; EFA counts.
 */
static void free_place(struct fake *f, uint64_t id)
{
	unsigned size = f->cap.max_send_wr;

	if (f->rules == STANDIN_EFA) {
		f->tail += f->tail != f->head;
		return;
	}
	for (uint64_t i = f->head; i-- > 0 && f->head - i <= size;) {
		struct request *r = &f->ring[i % size];

		if (r->id == id && !r->done) {
			r->done = 1;
			f->tail = i + 1;
			return;
		}
	}
}

static int push_from(struct ibv_cq *cq, struct ibv_wc wc, const union ibv_gid *sender)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	int ok;

	pthread_mutex_lock(&lock);
	ok = c->n < COMPLETIONS;
	if (ok) {
		c->senders[(c->head + c->n) % COMPLETIONS] = *sender;
		c->wcs[(c->head + c->n++) % COMPLETIONS] = wc;
	}
	pthread_mutex_unlock(&lock);
	return ok;
}

static int push(struct ibv_cq *cq, struct ibv_wc wc)
{
	union ibv_gid nobody = {};

	return push_from(cq, wc, &nobody);
}

/* Completions of a driver's requests have numbers above those of receives. */
static int is_receive(const struct ibv_wc *wc) { return wc->opcode >= IBV_WC_RECV && wc->opcode < IBV_WC_DRIVER1; }

int recorder_complete(uint32_t qpn, struct ibv_wc wc)
{
	struct fake *f = find(qpn);

	return f && push(is_receive(&wc) ? f->ex.qp_base.recv_cq : f->ex.qp_base.send_cq, wc);
}

int recorder_receive_from(uint32_t qpn, struct ibv_wc wc, const void *gid)
{
	struct fake *f = find(qpn);
	union ibv_gid sender;

	memcpy(&sender, gid, sizeof(sender));
	return f && push_from(f->ex.qp_base.recv_cq, wc, &sender);
}

int standin_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	int got = 0;

	pthread_mutex_lock(&lock);
	for (; got < n && c->n; c->n--, got++) {
		struct fake *f;

		c->sender = c->senders[c->head % COMPLETIONS];
		wcs[got] = c->wcs[c->head++ % COMPLETIONS];
		f = find(wcs[got].qp_num);
		if (f && !is_receive(&wcs[got]))
			free_place(f, wcs[got].wr_id);
	}
	pthread_mutex_unlock(&lock);
	return got;
}

struct ibv_cq *standin_create_cq(struct ibv_context *ctx, int depth, void *own, struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *c = calloc(1, sizeof(*c));

	(void)vector;
	*ibv_cq_ex_to_cq(&c->ex) = (struct ibv_cq){ .context = ctx, .channel = channel, .cq_context = own, .cqe = depth };
	return ibv_cq_ex_to_cq(&c->ex);
}

static int next_poll(struct ibv_cq_ex *x)
{
	struct fake_cq *c = (struct fake_cq *)x;

	if (!standin_poll_cq(ibv_cq_ex_to_cq(x), 1, &c->now))
		return ENOENT;
	x->wr_id = c->now.wr_id;
	x->status = c->now.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr)
{
	(void)attr;
	return next_poll(x);
}

static void end_poll(struct ibv_cq_ex *x) { (void)x; }

static struct ibv_wc *current(struct ibv_cq_ex *x) { return &((struct fake_cq *)x)->now; }

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *x) { return current(x)->opcode; }
static uint32_t read_qp_num(struct ibv_cq_ex *x) { return current(x)->qp_num; }
static uint32_t read_byte_len(struct ibv_cq_ex *x) { return current(x)->byte_len; }
static unsigned int read_flags(struct ibv_cq_ex *x) { return current(x)->wc_flags; }
static __be32 read_imm(struct ibv_cq_ex *x) { return current(x)->imm_data; }
static uint32_t read_src_qp(struct ibv_cq_ex *x) { return current(x)->src_qp; }
static uint32_t read_slid(struct ibv_cq_ex *x) { return current(x)->slid; }
static uint32_t read_vendor_err(struct ibv_cq_ex *x) { return current(x)->vendor_err; }
static uint8_t read_nothing(struct ibv_cq_ex *x) { (void)x; return 0; }

/* efa_wc_read_sgid in providers/efa/verbs.c: of receives alone, and of senders without a handle. */
static int read_sgid(struct efadv_cq *dv, union ibv_gid *gid)
{
	struct fake_cq *c = (struct fake_cq *)((char *)dv - offsetof(struct fake_cq, dv));

	if (!is_receive(&c->now))
		note("SENDER OF A SEND\n");
	if (c->now.slid != 0xffff)
		return -ENOENT;
	*gid = c->sender;
	return 0;
}

struct ibv_cq_ex *standin_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a, int sender)
{
	struct ibv_cq *cq = standin_create_cq(ctx, a->cqe, a->cq_context, a->channel, a->comp_vector);
	struct fake_cq *c = (struct fake_cq *)cq;

	c->ex.start_poll = start_poll;
	c->ex.next_poll = next_poll;
	c->ex.end_poll = end_poll;
	c->ex.read_opcode = read_opcode;
	c->ex.read_qp_num = read_qp_num;
	c->ex.read_byte_len = read_byte_len;
	c->ex.read_wc_flags = read_flags;
	c->ex.read_imm_data = read_imm;
	c->ex.read_src_qp = read_src_qp;
	c->ex.read_slid = read_slid;
	c->ex.read_vendor_err = read_vendor_err;
	c->ex.read_sl = read_nothing;
	c->ex.read_dlid_path_bits = read_nothing;
	c->dv.wc_read_sgid = sender ? read_sgid : NULL;
	return &c->ex;
}

struct efadv_cq *standin_efa_cq(struct ibv_cq_ex *x) { return &((struct fake_cq *)x)->dv; }

int standin_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

int recorder_set_state(uint32_t qpn, uint32_t state)
{
	struct fake *f = find(qpn);

	if (f)
		f->device = state;
	return f != NULL;
}

enum ibv_qp_state standin_state(struct ibv_qp *qp) { return of((struct ibv_qp_ex *)qp)->device; }

int standin_set_state(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct fake *f = of((struct ibv_qp_ex *)qp);

	if (f->dct && to != IBV_QPS_INIT && to != IBV_QPS_RTR)
		return EINVAL;
	if (f->rules == STANDIN_EFA && to == IBV_QPS_ERR && qp->state == IBV_QPS_RESET)
		return EINVAL;
	if (to == IBV_QPS_RESET)
		f->head = f->tail = 0;
	qp->state = f->device = to;
	return 0;
}

/* Every call that can find something wrong remembers the first. */
static void wrong(struct fake *f, int err, const char *what)
{
	note("  %s\n", what);
	if (!f->err)
		f->err = err;
}

static void start(struct ibv_qp_ex *x)
{
	struct fake *f = of(x);

	note("start\n");
	f->begun = f->setters = f->err = 0;
}

static void finished(struct fake *f)
{
	if (f->setters > 0 && !f->err)
		wrong(f, EINVAL, "UNFINISHED");
	f->setters = 0;
}

static int complete(struct ibv_qp_ex *x)
{
	struct fake *f = of(x);
	int err = recorder_refused("complete");

	finished(f);
	note("complete\n");
	if (!err)
		err = f->err;
	if (err)
		return err;
	for (f->head += f->begun; x->qp_base.state == IBV_QPS_ERR && f->begun; f->begun--) {
		uint64_t id = f->ring[(f->head - f->begun) % f->cap.max_send_wr].id;

		push(x->qp_base.send_cq, (struct ibv_wc){ .wr_id = id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = x->qp_base.qp_num });
	}
	return 0;
}

int standin_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake *f = of((struct ibv_qp_ex *)qp);

	if (qp->state == IBV_QPS_RESET || (f->rules == STANDIN_EFA && qp->state == IBV_QPS_ERR)) {
		*bad = wr;
		return EINVAL;
	}
	for (; wr; wr = wr->next) {
		note("recv id=%#lx pieces=%d\n", (unsigned long)wr->wr_id, wr->num_sge);
		if (qp->state == IBV_QPS_ERR)
			push(qp->recv_cq, (struct ibv_wc){ .wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->qp_num });
	}
	return 0;
}

static void wr_abort(struct ibv_qp_ex *x)
{
	note("abort\n");
	(void)x;
}

/* What efa_post_send_validate and the state table say. */
static void validate(struct fake *f)
{
	enum ibv_qp_state state = f->ex.qp_base.state;
	unsigned flags = f->ex.wr_flags;

	if (f->rules == STANDIN_MLX5) {
		if (state < IBV_QPS_RTS)
			wrong(f, EINVAL, "WRONG STATE");
		return;
	}
	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD)
		wrong(f, EINVAL, "WRONG STATE");
	if (!(flags & IBV_SEND_SIGNALED) && !f->sig_all)
		wrong(f, EINVAL, "UNSIGNALED");
	if (flags & ~(IBV_SEND_SIGNALED | IBV_SEND_INLINE))
		wrong(f, EINVAL, "UNKNOWN FLAGS");
}

/* Begins a request that needs so many setters. */
static void begin(struct ibv_qp_ex *x, const char *name, int setters)
{
	struct fake *f = of(x);
	unsigned size = f->cap.max_send_wr;

	finished(f);
	note("%s id=%#lx flags=%#x", name, (unsigned long)x->wr_id, x->wr_flags);
	f->setters = setters;
	if (f->head + f->begun - f->tail < size) {
		f->ring[(f->head + f->begun++) % size] = (struct request){ .id = x->wr_id };
		return;
	}
	if (!f->err)
		f->err = ENOMEM;
	if (f->rules == STANDIN_MLX5)
		note(" OVERWRITES id=%#lx", (unsigned long)f->ring[(f->head + f->begun - 1) % size].id);
}

/* Of requests with data: that, and where it goes if there is no connection. */
static int setters(struct ibv_qp_ex *x) { return x->qp_base.qp_type == IBV_QPT_DRIVER || x->qp_base.qp_type == IBV_QPT_UD ? 2 : 1; }

#define BEGUN(...) do { note(__VA_ARGS__); validate(of(x)); } while (0)

static void wr_send(struct ibv_qp_ex *x) { begin(x, "send", setters(x)); BEGUN("\n"); }
static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm) { begin(x, "send_imm", setters(x)); BEGUN(" imm=%#x\n", be32toh(imm)); }
static void wr_send_inv(struct ibv_qp_ex *x, uint32_t rkey) { begin(x, "send_inv", setters(x)); BEGUN(" rkey=%#x\n", rkey); }
static void wr_local_inv(struct ibv_qp_ex *x, uint32_t rkey) { begin(x, "local_inv", 0); BEGUN(" rkey=%#x\n", rkey); }

static void wr_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	begin(x, "write", setters(x));
	BEGUN(" rkey=%#x addr=%#lx\n", rkey, (unsigned long)addr);
}

static void wr_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr)
{
	begin(x, "read", setters(x));
	BEGUN(" rkey=%#x addr=%#lx\n", rkey, (unsigned long)addr);
}

static void wr_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm)
{
	begin(x, "write_imm", setters(x));
	BEGUN(" rkey=%#x addr=%#lx imm=%#x\n", rkey, (unsigned long)addr, be32toh(imm));
}

static void wr_cas(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	begin(x, "cmp_swap", setters(x));
	BEGUN(" rkey=%#x addr=%#lx compare=%lu swap=%lu\n", rkey, (unsigned long)addr, (unsigned long)compare, (unsigned long)swap);
}

static void wr_faa(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t add)
{
	begin(x, "fetch_add", setters(x));
	BEGUN(" rkey=%#x addr=%#lx add=%lu\n", rkey, (unsigned long)addr, (unsigned long)add);
}

static void wr_bind_mw(struct ibv_qp_ex *x, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	(void)mw;
	begin(x, "bind_mw", 0);
	BEGUN(" rkey=%#x addr=%#lx length=%lu\n", rkey, (unsigned long)info->addr, (unsigned long)info->length);
}

static void wr_flush(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level)
{
	begin(x, "flush", 0);
	BEGUN(" rkey=%#x addr=%#lx length=%zu type=%u level=%u\n", rkey, (unsigned long)addr, length, type, level);
}

/* The errno for a request that is too big: mlx5's is that of a full queue. */
static int too_big(struct fake *f) { return f->rules == STANDIN_MLX5 ? ENOMEM : EINVAL; }

static void set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	note("  sge lkey=%#x addr=%#lx length=%u\n", lkey, (unsigned long)addr, length);
	if (x->qp_base.qp_type == IBV_QPT_RAW_PACKET && length < 18)
		wrong(of(x), EINVAL, "NO FRAME");
	of(x)->setters--;
}

static void set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list)
{
	note("  sge list of %zu\n", n);
	if (x->qp_base.qp_type == IBV_QPT_RAW_PACKET && !n)
		wrong(of(x), EINVAL, "NO FRAME");
	if (n > of(x)->cap.max_send_sge)
		wrong(of(x), too_big(of(x)), "TOO MANY");
	for (size_t i = 0; i < n; i++)
		note("  sge lkey=%#x addr=%#lx length=%u\n", list[i].lkey, (unsigned long)list[i].addr, list[i].length);
	of(x)->setters--;
}

static void inline_size(struct fake *f, size_t size)
{
	if (size > f->cap.max_inline_data)
		wrong(f, too_big(f), "TOO LONG");
	f->setters--;
}

static void set_inline(struct ibv_qp_ex *x, void *addr, size_t length)
{
	note("  inline \"%.*s\"\n", (int)length, (char *)addr);
	inline_size(of(x), length);
}

static void set_inline_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list)
{
	size_t size = 0;

	for (size_t i = 0; i < n; i++) {
		note("  inline \"%.*s\"\n", (int)list[i].length, (char *)list[i].addr);
		size += list[i].length;
	}
	inline_size(of(x), size);
}

static unsigned long ah_name(struct ibv_ah *ah) { return ah->handle; }

static void set_ud(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	note("  ud ah=%#lx qpn=%#x qkey=%#x\n", ah_name(ah), qpn, qkey);
	of(x)->setters--;
}

static void set_dc(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx\n", ah_name(ah), dctn, (unsigned long)key);
	of_dv(m)->setters--;
}

static void set_dc_stream(struct mlx5dv_qp_ex *m, struct ibv_ah *ah, uint32_t dctn, uint64_t key, uint16_t stream)
{
	note("  dc ah=%#lx dctn=%#x key=%#lx stream=%u\n", ah_name(ah), dctn, (unsigned long)key, stream);
	of_dv(m)->setters--;
}

static void raw_wqe(struct mlx5dv_qp_ex *m, const void *wqe)
{
	struct ibv_qp_ex *x = &of_dv(m)->ex;
	const unsigned char *b = wqe;

	begin(x, "raw", 0);
	note(" ");
	for (int i = 0; i < (b[7] & 0x3f) * 16; i++)
		note("%02x", b[i]);
	BEGUN("\n");
}

struct mlx5dv_qp_ex *standin_mlx5_ex(struct ibv_qp_ex *x) { return &of(x)->dv; }

static void set_pointers(struct fake *f, uint64_t ops, struct mlx5dv_qp_init_attr *m)
{
	struct ibv_qp_ex *x = &f->ex;

	x->wr_start = start;
	x->wr_complete = complete;
	x->wr_abort = wr_abort;
	x->wr_send = ops & IBV_QP_EX_WITH_SEND ? wr_send : NULL;
	x->wr_send_imm = ops & IBV_QP_EX_WITH_SEND_WITH_IMM ? wr_send_imm : NULL;
	x->wr_send_inv = ops & IBV_QP_EX_WITH_SEND_WITH_INV ? wr_send_inv : NULL;
	x->wr_rdma_write = ops & IBV_QP_EX_WITH_RDMA_WRITE ? wr_write : NULL;
	x->wr_rdma_write_imm = ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM ? wr_write_imm : NULL;
	x->wr_rdma_read = ops & IBV_QP_EX_WITH_RDMA_READ ? wr_read : NULL;
	x->wr_atomic_cmp_swp = ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP ? wr_cas : NULL;
	x->wr_atomic_fetch_add = ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD ? wr_faa : NULL;
	x->wr_local_inv = ops & IBV_QP_EX_WITH_LOCAL_INV ? wr_local_inv : NULL;
	x->wr_bind_mw = ops & IBV_QP_EX_WITH_BIND_MW ? wr_bind_mw : NULL;
	if (standin_flush_at && ops & GV_OP_FLUSH)
		*(gv_flush_fn **)((char *)x + standin_flush_at) = wr_flush;
	x->wr_set_sge = set_sge;
	x->wr_set_sge_list = set_sge_list;
	x->wr_set_inline_data = set_inline;
	x->wr_set_inline_data_list = set_inline_list;
	if (f->rules == STANDIN_EFA || x->qp_base.qp_type == IBV_QPT_UD)
		x->wr_set_ud_addr = set_ud;
	if (!m)
		return;
	if (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) {
		f->dv.wr_set_dc_addr = set_dc;
		f->dv.wr_set_dc_addr_stream = set_dc_stream;
	}
	if (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS && m->send_ops_flags & MLX5DV_QP_EX_WITH_RAW_WQE)
		f->dv.wr_raw_wqe = raw_wqe;
}

struct ibv_qp *standin_new_qp(struct ibv_qp_init_attr_ex *a, enum standin_rules rules, struct mlx5dv_qp_init_attr *m)
{
	struct fake *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->ex.qp_base.qp_type = a->qp_type;
	f->ex.qp_base.qp_num = 0x4711 + numbers++;
	f->ex.qp_base.send_cq = a->send_cq;
	f->ex.qp_base.recv_cq = a->recv_cq;
	f->ex.qp_base.context = a->pd->context;
	f->rules = rules;
	f->cap = a->cap;
	f->sig_all = a->sq_sig_all;
	f->ring = calloc(a->cap.max_send_wr + 1, sizeof(*f->ring));
	f->dct = m && m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC && m->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
	if (!f->dct)
		set_pointers(f, a->send_ops_flags, m);
	pthread_mutex_lock(&lock);
	f->next = qps;
	qps = f;
	pthread_mutex_unlock(&lock);
	return &f->ex.qp_base;
}

void standin_free_qp(struct ibv_qp *qp)
{
	struct fake *f = of((struct ibv_qp_ex *)qp);
	struct fake **at = &qps;

	pthread_mutex_lock(&lock);
	while (*at && *at != f)
		at = &(*at)->next;
	if (*at)
		*at = f->next;
	pthread_mutex_unlock(&lock);
	free(f->ring);
	free(f);
}

void standin_forget(void)
{
	qps = NULL;
	numbers = 0;
}
