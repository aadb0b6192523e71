//go:build simhca && linux && cgo

/* What an EFA device says of itself; memory that it gives out. */
#include "efa.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EF_RIGHTS_ALWAYS IBV_ACCESS_LOCAL_WRITE

static struct ef_region *regions;

static bool option(struct sim_device *d, const char *name)
{
	if (!strcmp(name, "reverse"))
		d->options |= EF_REVERSE;
	else if (!strcmp(name, "random"))
		d->options |= EF_RANDOM;
	else if (!strcmp(name, "nowrite"))
		d->options |= EF_NO_WRITE;
	else
		return false;
	return true;
}

/* EFA has no node GUID, and one GID. */
static void init(struct sim_device *d)
{
	const uint8_t gid[16] = { 0xfe, 0x80, [8] = 0x02, 0, 0, 0xff, 0xfe, 0xef, 0xa0, d->number + 1 };

	d->part = d->options & EF_NO_WRITE ? 0xefa0 : 0xefa2;
	d->ngids = 1;
	memcpy(d->gids[0].raw, gid, 16);
}

uint32_t ef_caps(const struct sim_device *d)
{
	return EF_CAP_READ | EF_CAP_RNR | EF_CAP_EVENTS | EF_CAP_SGID | (d->options & EF_NO_WRITE ? 0 : EF_CAP_WRITE);
}

static uint32_t rights(const struct sim_device *d)
{
	return EF_RIGHTS_ALWAYS | IBV_ACCESS_REMOTE_READ | (ef_caps(d) & EF_CAP_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
}

struct ef_region *ef_region(struct sim_ctx *c, size_t len)
{
	static uint64_t next = 1;
	struct ef_region *r = calloc(1, sizeof(*r));

	r->ctx = c;
	r->len = (len + EF_PAGE - 1) / EF_PAGE * EF_PAGE;
	r->key = next * EF_PAGE;
	next += r->len / EF_PAGE;
	r->fd = memfd_create("simhca", MFD_CLOEXEC);
	if (r->fd < 0 || ftruncate(r->fd, r->len)) {
		perror("simhca: memory of a queue");
		abort();
	}
	r->at = sim_real.mmap(NULL, r->len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->at == MAP_FAILED) {
		perror("simhca: memory of a queue");
		abort();
	}
	r->next = regions;
	return regions = r;
}

void ef_region_drop(struct ef_region *r)
{
	if (!r)
		return;
	for (struct ef_region **p = &regions; *p; p = &(*p)->next) {
		if (*p == r) {
			*p = r->next;
			break;
		}
	}
	munmap(r->at, r->len);
	sim_real.close(r->fd);
	free(r);
}

static void *map(struct sim_ctx *c, void *addr, size_t len, int prot, int flags, off_t off)
{
	struct ef_region *r = regions;

	while (r && (r->ctx != c || r->key != (uint64_t)off))
		r = r->next;
	if (!r || len > r->len || !(flags & MAP_SHARED) || prot & PROT_EXEC) {
		errno = sim_refuse(EINVAL, "a map of %zu bytes at %#llx", len, (unsigned long long)off);
		return MAP_FAILED;
	}
	return sim_real.mmap(addr, len, prot, flags, r->fd, 0);
}

static int get_context(struct sim_ctx *c, struct sim_io *io)
{
	struct ib_uverbs_get_context_resp r = { .async_fd = c->async.reader, .num_comp_vectors = 1 };
	struct efa_ibv_alloc_ucontext_resp u = { .cmds_supp_udata_mask = EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | EFA_USER_CMDS_SUPP_UDATA_CREATE_AH,
		.sub_cqs_per_cq = EF_SUB_CQS, .inline_buf_size = EF_INLINE, .max_llq_size = EF_MAX_SQ * sizeof(struct ef_entry),
		.max_tx_batch = EF_BATCH, .min_sq_wr = EF_MIN_SQ };
	uint32_t known = 0; /* a field that has had two names */

	if (io->driver_in && io->ndriver_in >= sizeof(known))
		memcpy(&known, io->driver_in, sizeof(known));
	if ((known & 3) != 3)
		return sim_refuse(EOPNOTSUPP, "libefa does not know the limits of this device");
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

static int query_device(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	struct ib_uverbs_ex_query_device_resp r = { .response_length = sizeof(r) };
	struct efa_ibv_ex_query_device_resp u = { .max_sq_wr = EF_MAX_SQ, .max_rq_wr = EF_MAX_RQ, .max_sq_sge = EF_SGE, .max_rq_sge = EF_SGE,
		.max_rdma_size = EF_MAX_RDMA, .device_caps = ef_caps(c->dev) };

	r.base = (struct ib_uverbs_query_device_resp){ .fw_ver = 1 | 99 << 8, .max_mr_size = 1ull << 37, .page_size_cap = 0xfffff000, .vendor_id = 0x1d0f,
		.vendor_part_id = c->dev->part, .hw_ver = c->dev->part, .max_qp = EF_MAX_QP, .max_qp_wr = EF_MAX_SQ, .max_sge = EF_SGE, .max_sge_rd = 1,
		.max_cq = 1024, .max_cqe = EF_MAX_CQE, .max_mr = 2048, .max_pd = 1024, .max_ah = 2048, .max_pkeys = 1, .phys_port_cnt = 1 };
	if (!ex) {
		SIM_OUT(r.base);
		return 0;
	}
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

static int query_port(struct sim_io *io)
{
	SIM_IN(ib_uverbs_query_port, a);
	struct ib_uverbs_query_port_resp r = { .max_msg_sz = EF_MTU, .gid_tbl_len = 1, .pkey_tbl_len = 1, .lmc = 1, .state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .max_vl_num = 1, .active_width = 2, .active_speed = 32, .phys_state = 5 };

	if (a.port_num != 1)
		return sim_refuse(EINVAL, "port %u", a.port_num);
	SIM_OUT(r);
	return 0;
}

struct sim_device *ef_device_at(struct sim_device *from, const uint8_t gid[16])
{
	for (int i = 0; i < sim_self->ndevices; i++)
		if (sim_self->devices[i].model == &sim_efa && !sim_self->devices[i].removed && !from->removed && !memcmp(sim_self->devices[i].gids[0].raw, gid, 16))
			return &sim_self->devices[i];
	return NULL;
}

static int command(struct sim_ctx *c, uint32_t cmd, bool ex, struct sim_io *io)
{
	switch (cmd) {
	case IB_USER_VERBS_CMD_QUERY_DEVICE: return query_device(c, ex, io);
	case IB_USER_VERBS_CMD_CREATE_CQ: return ef_create_cq(c, ex, io);
	case IB_USER_VERBS_CMD_CREATE_QP: return ef_create_qp(c, ex, io);
	case IB_USER_VERBS_CMD_MODIFY_QP: return ef_modify_qp(c, io);
	}
	if (ex)
		return sim_refuse(EOPNOTSUPP, "extended command %u is not simulated", cmd);
	switch (cmd) {
	case IB_USER_VERBS_CMD_GET_CONTEXT: return get_context(c, io);
	case IB_USER_VERBS_CMD_QUERY_PORT: return query_port(io);
	case IB_USER_VERBS_CMD_ALLOC_PD: return ef_alloc_pd(c, io);
	case IB_USER_VERBS_CMD_REG_MR: return sim_reg_mr(c, io, rights(c->dev));
	case IB_USER_VERBS_CMD_CREATE_AH: return ef_create_ah(c, io);
	case IB_USER_VERBS_CMD_QUERY_QP: return ef_query_qp(c, io);
	}
	return SIM_COMMON;
}

static int other_ioctl(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	sim_trace(2, "ioctl: object %#x method %#x is not simulated", h->object_id, h->method_id);
	return EPROTONOSUPPORT;
}

static bool work(struct sim_obj *o)
{
	return o->kind == SIM_CQ ? ef_cq_work((struct ef_cq *)o) : ef_qp_work((struct ef_qp *)o);
}

static struct sim_obj *find_qp(struct sim_device *d, uint32_t qpn)
{
	struct ef_qp *q = qpn > 0xffff ? NULL : ef_qp_of(d, qpn);

	return q ? &q->o : NULL;
}

static void fail_qp(struct sim_obj *o)
{
	struct ef_qp *q = (struct ef_qp *)o;

	q->state = IBV_QPS_ERR;
	sim_async_event(o, IBV_EVENT_QP_FATAL);
}

static void release(struct sim_obj *o)
{
	if (o->kind == SIM_CQ) {
		struct ef_cq *q = (struct ef_cq *)o;

		ef_region_drop(q->mem);
		ef_region_drop(q->page);
	}
	if (o->kind == SIM_QP)
		ef_qp_forget((struct ef_qp *)o);
	if (o->kind == SIM_AH)
		ef_ah_forget((struct ef_ah *)o);
}

const struct sim_model sim_efa = {
	.name = "efa", .option = option, .init = init, .command = command, .ioctl = other_ioctl, .map = map, .work = work,
	.find_qp = find_qp, .fail_qp = fail_qp, .release = release,
};
