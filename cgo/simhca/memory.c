//go:build simhca && linux && cgo

/* Memory regions: keys, rights, bounds. */
#include "sim.h"
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum {
	LOCAL = IBV_ACCESS_LOCAL_WRITE,
	WRITES = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	HINTS = 0x3ff << 20, /* IB_ACCESS_OPTIONAL: those that a driver may ignore */
	PAGE = 4096,
};

/* The kernel's rule, then the driver's. */
static int check_access(uint32_t access, uint32_t may)
{
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & LOCAL))
		return sim_refuse(EINVAL, "rights %#x: remote writes without local ones", access);
	if (access & ~(may | HINTS))
		return sim_refuse(EOPNOTSUPP, "rights %#x, and the device has %#x", access, may);
	return 0;
}

/* Tells whether the kernel has the advice that pin needs, Linux 5.14. */
static bool can_pin(void)
{
	static int can = -1;
	void *page;

	if (can < 0) {
		page = sim_real.mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		can = page != MAP_FAILED && !madvise(page, PAGE, MADV_POPULATE_WRITE);
		munmap(page, PAGE);
	}
	return can;
}

/* The kernel brings the pages into memory, which fails where there are none, or none to write to. */
static int pin(uint64_t start, uint64_t length, uint32_t access)
{
	uint64_t from = start & ~(uint64_t)(PAGE - 1), to = (start + length + PAGE - 1) & ~(uint64_t)(PAGE - 1);

	if (start + length < start)
		return EINVAL;
	if (from == to || !can_pin() || !madvise((void *)(uintptr_t)from, to - from, access & WRITES ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return 0;
	return sim_refuse(EFAULT, "%llu bytes at %#llx are no memory for rights %#x", (unsigned long long)length, (unsigned long long)start, access);
}

/* The lower 8 bits of a key change. Only 24 bits reach EFA's descriptors, and the others are 0 without a fabric. */
static void new_keys(struct sim_mr *m)
{
	static uint8_t variant;

	m->lkey = m->rkey = sim_key(&m->o, ++variant);
	if (m->o.ctx->dev->model == &sim_efa)
		m->rkey |= 1u << 31;
}

int sim_reg_mr(struct sim_ctx *c, struct sim_io *io, uint32_t may)
{
	SIM_IN(ib_uverbs_reg_mr, a);
	struct sim_obj *pd = sim_get(c, a.pd_handle, SIM_PD);
	struct ib_uverbs_reg_mr_resp r;
	struct sim_mr *m;
	int err;

	if ((a.start & (PAGE - 1)) != (a.hca_va & (PAGE - 1)))
		return sim_refuse(EINVAL, "a region's address and the peers' name for it differ within the page");
	if (!pd)
		return sim_refuse(EINVAL, "a region without a protection domain");
	err = check_access(a.access_flags, may);
	if (!err)
		err = pin(a.start, a.length, a.access_flags);
	if (err)
		return err;
	m = sim_add(c, SIM_MR, sizeof(*m));
	if (!m)
		return ENOMEM;
	sim_hold(pd, &m->o);
	m->start = a.start;
	m->length = a.length;
	m->va = a.hca_va;
	m->access = a.access_flags;
	new_keys(m);
	r = (struct ib_uverbs_reg_mr_resp){ .mr_handle = m->o.handle, .lkey = m->lkey, .rkey = m->rkey };
	SIM_OUT(r);
	return 0;
}

int sim_rereg_mr(struct sim_ctx *c, struct sim_io *io, uint32_t may)
{
	SIM_IN(ib_uverbs_rereg_mr, a);
	struct sim_mr *m = sim_get(c, a.mr_handle, SIM_MR);
	struct sim_obj *pd = NULL;
	struct ib_uverbs_rereg_mr_resp r;
	uint32_t access;
	int err;

	if (!m || !a.flags || a.flags & ~(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS))
		return sim_refuse(EINVAL, "change of a region: flags %#x", a.flags);
	if (a.flags & IBV_REREG_MR_CHANGE_PD && !(pd = sim_get(c, a.pd_handle, SIM_PD)))
		return sim_refuse(EINVAL, "change of a region: no such protection domain");
	access = a.flags & IBV_REREG_MR_CHANGE_ACCESS ? a.access_flags : m->access;
	err = check_access(access, may);
	if (!err && a.flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		err = (a.start ^ a.hca_va) & (PAGE - 1) ? EINVAL : pin(a.start, a.length, access);
	if (err)
		return err;
	m->access = access;
	if (a.flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		m->start = a.start;
		m->length = a.length;
		m->va = a.hca_va;
	}
	if (pd) {
		m->o.pd->refs--;
		sim_hold(pd, &m->o);
	}
	if (a.flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		new_keys(m); /* mlx5_ib changes rights and protection domain in place */
	r = (struct ib_uverbs_rereg_mr_resp){ .lkey = m->lkey, .rkey = m->rkey };
	SIM_OUT(r);
	return 0;
}

/* Where in this process a range lies that a key covers, or NULL. */
uint8_t *sim_memory(struct sim_obj *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len, uint32_t access)
{
	struct sim_mr *m = sim_any(pd->ctx->dev->node, key >> 8 & (SIM_OBJECTS - 1), SIM_MR);
	const char *why = NULL;

	if (!m || (remote ? m->rkey : m->lkey) != key)
		why = "no such key";
	else if (m->o.pd != pd)
		why = "another protection domain";
	else if (m->o.ctx->dev != pd->ctx->dev)
		why = "another device";
	else if ((m->access & access) != access)
		why = "the region does not allow it";
	else if (addr < m->va || addr - m->va > m->length || len > m->length - (addr - m->va))
		why = "outside of the region";
	if (why) {
		sim_trace(1, "refused: %s key %#x, %llu bytes at %#llx, rights %#x: %s", remote ? "remote" : "local", key,
			  (unsigned long long)len, (unsigned long long)addr, access, why);
		return NULL;
	}
	return (uint8_t *)(uintptr_t)(addr - m->va + m->start);
}

/* Copies as much as both lists hold. */
void sim_copy(struct sim_piece *to, int nto, const struct sim_piece *from, int nfrom)
{
	uint64_t a = 0, b = 0;

	for (int i = 0, j = 0; i < nto && j < nfrom;) {
		uint64_t n = to[i].len - a < from[j].len - b ? to[i].len - a : from[j].len - b;

		if (n) /* pieces without bytes have no address */
			memmove(to[i].at + a, from[j].at + b, n);
		a += n;
		b += n;
		if (a == to[i].len) {
			i++;
			a = 0;
		}
		if (b == from[j].len) {
			j++;
			b = 0;
		}
	}
}
