//go:build simhca && linux && cgo

/*
 * Memory windows. A window is a key of the device's that leads to another one. A UMR
 * entry of the send queue changes it:
 *
 *	control, with the key | what to change | the key's context | [the other key, its range]
 *
 * Which of its fields count, a mask says. mlx5_ib makes a window of type 2 as a key that a
 * SEND may invalidate; such a key belongs to the queue pair that bound it.
 */
#include "mlx5.h"

enum { ANY_QP = 0xffffff };

struct window {
	struct sim_obj o;
	uint32_t rkey, qpn, access;
	bool two, bound;
	uint64_t start, len; /* as peers name it */
	uint32_t lkey;       /* of the region */
	uint64_t at;         /* in it */
};

int mx_alloc_window(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_alloc_mw, a);
	struct sim_obj *pd = sim_get(c, a.pd_handle, SIM_PD);
	struct ib_uverbs_alloc_mw_resp r;
	struct window *m;

	if (!pd || (a.mw_type != IBV_MW_TYPE_1 && a.mw_type != IBV_MW_TYPE_2))
		return sim_refuse(EINVAL, "a memory window of type %u", a.mw_type);
	m = sim_add(c, SIM_MW, sizeof(*m));
	if (!m)
		return ENOMEM;
	sim_hold(pd, &m->o);
	m->two = a.mw_type == IBV_MW_TYPE_2;
	m->qpn = ANY_QP;
	m->rkey = sim_key(&m->o, 0);
	r = (struct ib_uverbs_alloc_mw_resp){ .mw_handle = m->o.handle, .rkey = m->rkey };
	SIM_OUT(r);
	return 0;
}

static struct window *window_of(struct sim_obj *o, uint32_t key) { return sim_any(o->ctx->dev->node, key >> 8 & (SIM_OBJECTS - 1), SIM_MW); }

static uint32_t rights(const struct mlx5_wqe_mkey_context_seg *k)
{
	uint8_t f = k->access_flags;

	return (f & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) |
	       (f & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (f & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (f & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

/* What the region must allow for that (sections 10.6.7.2.2 and 11.2.8.10). */
static uint32_t region_rights(uint32_t access)
{
	return access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) ? IBV_ACCESS_LOCAL_WRITE : 0;
}

static const char *bind(struct mx_qp *q, struct window *m, const struct mlx5_wqe_umr_ctrl_seg *c, const struct mlx5_wqe_mkey_context_seg *k,
			const struct mlx5_wqe_umr_klm_seg *r)
{
	const uint64_t all = MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
		MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
	uint32_t access = rights(k), key = be32toh(r->mkey), n = be32toh(r->byte_count), owner = be32toh(k->qpn_mkey) >> 8;
	uint64_t at = be64toh(r->address), start = be64toh(k->start_addr);

	if ((be64toh(c->mkey_mask) & all) != all || !(c->flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE))
		return "only part of it is bound";
	if (m->two ? !(c->flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE) || owner != q->qpn : owner != ANY_QP)
		return "bound as one of the other type";
	if (m->two && m->bound)
		return "it is bound";
	if (be64toh(k->len) != n || (start != at && start))
		return "another range than that of its region";
	if (!sim_memory(q->o.pd, key, false, at, n, IBV_ACCESS_MW_BIND | region_rights(access)))
		return "no such region, or it does not allow that";
	m->bound = true;
	m->qpn = owner;
	m->rkey = sim_key(&m->o, be32toh(k->qpn_mkey));
	m->access = access;
	m->start = start;
	m->len = n;
	m->lkey = key;
	m->at = at;
	return NULL;
}

static void unbind(struct window *m)
{
	m->bound = false;
	m->qpn = ANY_QP;
}

/* Bound to nothing, or invalidated, which a window of type 2 has to be before it is bound again. */
static const char *free_key(struct mx_qp *q, struct window *m, const struct mlx5_wqe_umr_ctrl_seg *c, const struct mlx5_wqe_mkey_context_seg *k, uint32_t key)
{
	bool check = c->flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;

	if (m->two != check)
		return "ended as one of the other type";
	if (m->two && (m->qpn != q->qpn || m->rkey != key))
		return "ended by another queue pair, or under another key";
	unbind(m);
	m->rkey = sim_key(&m->o, be32toh(k->qpn_mkey));
	return NULL;
}

int mx_umr(struct mx_qp *q, const struct mx_wqe *w)
{
	const struct mlx5_wqe_umr_ctrl_seg *c = (const void *)w->raw;
	const struct mlx5_wqe_mkey_context_seg *k = (const void *)(c + 1);
	uint64_t mask = be64toh(c->mkey_mask);
	uint32_t key = be32toh(w->imm);
	struct window *m = window_of(&q->o, key);
	const char *why;

	sim_change();
	if (!m || m->o.pd != q->o.pd)
		why = "no window of this protection domain";
	else if (!(mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) || !(mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY) ||
		 m->two != !!(mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN))
		why = "fields that are not to be changed, or have to be";
	else if (k->free & MLX5_WQE_MKEY_CONTEXT_FREE)
		why = free_key(q, m, c, k, key);
	else if (w->len < sizeof(*c) + sizeof(*k) + sizeof(struct mlx5_wqe_umr_klm_seg))
		why = "a binding without a region";
	else
		why = bind(q, m, c, k, (const void *)(k + 1));
	sim_changed();
	if (!why)
		return MX_DONE;
	sim_trace(1, "refused: queue pair %#x, entry %u, memory window %#x: %s", q->qpn, w->at, key, why);
	return MLX5_CQE_SYNDROME_MW_BIND_ERR;
}

/* Where the memory lies that a peer names, by a region's key or a window's. */
uint8_t *mx_remote_memory(struct mx_qp *t, uint32_t key, uint64_t addr, uint64_t len, uint32_t access)
{
	struct window *m = window_of(&t->o, key);
	const char *why;

	if (!m)
		return sim_memory(t->o.pd, key, true, addr, len, access);
	why = !m->bound || m->rkey != key ? "not bound under that key" :
	      m->o.pd != t->o.pd ? "another protection domain" :
	      m->qpn != ANY_QP && m->qpn != t->qpn ? "bound by another queue pair" :
	      (m->access & access) != access ? "the window does not allow it" :
	      addr < m->start || addr - m->start > m->len || len > m->len - (addr - m->start) ? "outside of the window" : NULL;
	if (!why)
		return sim_memory(t->o.pd, m->lkey, false, addr - m->start + m->at, len, region_rights(access));
	sim_trace(1, "refused: memory window %#x, %llu bytes at %#llx, rights %#x: %s", key, (unsigned long long)len, (unsigned long long)addr, access, why);
	return NULL;
}

/* A SEND that invalidates ends a window of type 2 of the queue pair that it comes to, and nothing else. */
bool mx_may_invalidate(struct mx_qp *t, uint32_t key)
{
	struct window *m = window_of(&t->o, key);

	return m && m->two && m->bound && m->rkey == key && m->qpn == t->qpn;
}

void mx_invalidate(struct mx_qp *t, uint32_t key) { unbind(window_of(&t->o, key)); }
