//go:build simhca && linux && cgo

/*
 * The commands of uverbs. Libraries give them by the ioctl that carries the
 * structures of write(2); every other ioctl is refused in the way that makes
 * them fall back to it, unless a model knows it.
 */
#include "sim.h"

struct ib_uverbs_attr *sim_attr(struct ib_uverbs_ioctl_hdr *h, uint16_t id)
{
	for (int i = 0; i < h->num_attrs; i++)
		if (h->attrs[i].attr_id == id)
			return &h->attrs[i];
	return NULL;
}

/* Input of up to 8 bytes lies in the attribute itself. */
const uint8_t *sim_attr_in(struct ib_uverbs_attr *a, size_t *len)
{
	*len = a ? a->len : 0;
	if (!a)
		return NULL;
	return a->len <= 8 ? (const uint8_t *)&a->data : (const uint8_t *)(uintptr_t)a->data;
}

void sim_attr_out(struct ib_uverbs_attr *a, const void *p, size_t len)
{
	if (!a)
		return;
	memcpy((void *)(uintptr_t)a->data, p, len < a->len ? len : a->len);
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

static uint8_t *room(struct ib_uverbs_attr *a, size_t *len)
{
	uint8_t *p;

	*len = a ? a->len : 0;
	if (!a)
		return NULL;
	p = (uint8_t *)(uintptr_t)a->data;
	memset(p, 0, a->len);
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return p;
}

/* What is the same for all models. */
static int common(struct sim_ctx *c, uint32_t cmd, struct sim_io *io)
{
	switch (cmd) {
	case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return sim_create_channel(c, io);
#define DESTROY(name, type, field, kind) case IB_USER_VERBS_CMD_##name: { SIM_IN(type, a); return sim_destroy(c, a.field, kind, io); }
	DESTROY(DEALLOC_PD, ib_uverbs_dealloc_pd, pd_handle, SIM_PD)
	DESTROY(DESTROY_AH, ib_uverbs_destroy_ah, ah_handle, SIM_AH)
	DESTROY(DEREG_MR, ib_uverbs_dereg_mr, mr_handle, SIM_MR)
	DESTROY(DEALLOC_MW, ib_uverbs_dealloc_mw, mw_handle, SIM_MW)
	DESTROY(DESTROY_CQ, ib_uverbs_destroy_cq, cq_handle, SIM_CQ)
	DESTROY(DESTROY_QP, ib_uverbs_destroy_qp, qp_handle, SIM_QP)
	DESTROY(DESTROY_SRQ, ib_uverbs_destroy_srq, srq_handle, SIM_SRQ)
#undef DESTROY
	}
	return sim_refuse(EOPNOTSUPP, "command %u is not simulated", cmd);
}

static int command(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	size_t len;
	const uint8_t *word = sim_attr_in(sim_attr(h, UVERBS_ATTR_WRITE_CMD), &len);
	struct sim_io io = {};
	uint32_t cmd;
	int r;

	if (!word || len < sizeof(cmd))
		return EINVAL;
	memcpy(&cmd, word, sizeof(cmd));
	io.in = sim_attr_in(sim_attr(h, UVERBS_ATTR_CORE_IN), &io.nin);
	if (!io.in)
		return ENOSPC; /* libibverbs asks so whether this ioctl is known */
	io.driver_in = sim_attr_in(sim_attr(h, UVERBS_ATTR_UHW_IN), &io.ndriver_in);
	io.out = room(sim_attr(h, UVERBS_ATTR_CORE_OUT), &io.nout);
	io.driver_out = room(sim_attr(h, UVERBS_ATTR_UHW_OUT), &io.ndriver_out);
	r = c->dev->model->command(c, cmd & ~IB_USER_VERBS_CMD_FLAG_EXTENDED, cmd & IB_USER_VERBS_CMD_FLAG_EXTENDED, &io);
	if (r == SIM_COMMON)
		r = common(c, cmd, &io);
	sim_trace(2, "command %u: %s", cmd & ~IB_USER_VERBS_CMD_FLAG_EXTENDED, r ? strerror(r) : "done");
	return r;
}

int sim_ioctl(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	if (c->dev->removed) /* and what it had is gone: there is nothing to destroy */
		return EIO;
	if (h->object_id == UVERBS_OBJECT_DEVICE && h->method_id == UVERBS_METHOD_INVOKE_WRITE)
		return command(c, h);
	return c->dev->model->ioctl(c, h);
}
