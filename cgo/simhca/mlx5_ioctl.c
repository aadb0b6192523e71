//go:build simhca && linux && cgo

/*
 * Calls that mlx5 has beside the common ones: pages of doorbells, and the
 * firmware's commands that ask for capabilities and reset a stream of a DCI.
 * The offsets are those of NVIDIA's Programmer's Reference Manual.
 */
#include "mlx5.h"
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	FIRST_PAGE = 1 << 16,         /* offsets below are those of enum mlx5_ib_mmap_cmd */
	OP_QUERY_HCA_CAP = 0x100, OP_RTS2RTS_QP = 0x505,
	CAP_QPC_EXTENSION = 290,      /* a bit of the general capabilities */
	OUT_HEADER = 16,
	RTS2RTS_EXTENSION_SIZE = 276, /* up to the last field that is read here */
	RTS2RTS_MASK = 264,           /* which fields of the extension change */
	RTS2RTS_STREAM = 274,         /* dci_stream_channel_id of the extension */
};

static uint16_t be16(const uint8_t *p) { return p[0] << 8 | p[1]; }

static int firmware(struct ib_uverbs_ioctl_hdr *h)
{
	size_t n;
	const uint8_t *in = sim_attr_in(sim_attr(h, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN), &n);
	struct ib_uverbs_attr *out = sim_attr(h, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
	uint8_t *to;

	if (!in || n < 8 || !out || be16(in) != OP_QUERY_HCA_CAP)
		return sim_refuse(EOPNOTSUPP, "a firmware command that is not simulated");
	to = (uint8_t *)(uintptr_t)out->data;
	memset(to, 0, out->len);
	if (be16(in + 6) >> 1 == 0 && out->len > OUT_HEADER + CAP_QPC_EXTENSION / 8) /* general capabilities */
		to[OUT_HEADER + CAP_QPC_EXTENSION / 8] |= 0x80 >> CAP_QPC_EXTENSION % 8;
	return 0;
}

static int reset_stream(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	size_t n;
	const uint8_t *in = sim_attr_in(sim_attr(h, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN), &n);
	struct ib_uverbs_attr *handle = sim_attr(h, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
	struct mx_qp *q = handle ? sim_get(c, handle->data, SIM_QP) : NULL;
	uint16_t stream;

	if (!q || !in || n < RTS2RTS_EXTENSION_SIZE || be16(in) != OP_RTS2RTS_QP)
		return sim_refuse(EINVAL, "a firmware command for an object that is not simulated");
	if (!(in[8] >> 7) || memcmp(in + RTS2RTS_MASK, &(uint64_t){ 0 }, 8) == 0 || ((uint32_t)in[9] << 16 | be16(in + 10)) != q->qpn)
		return sim_refuse(EINVAL, "a change of queue pair %#x that changes nothing", q->qpn);
	stream = be16(in + RTS2RTS_STREAM);
	if (q->state != IBV_QPS_RTS || !q->streams)
		return sim_refuse(EINVAL, "reset of stream %u of queue pair %#x in state %d", stream, q->qpn, q->state);
	if (!mx_stream_in_error(q, stream))
		return sim_refuse(EINVAL, "reset of stream %u of queue pair %#x, which is in no error", stream, q->qpn);
	for (int i = 0; i < q->npending; i++)
		if (q->pending[i].stream == stream)
			sim_trace(1, "stream %u of queue pair %#x is reset with requests in it", stream, q->qpn);
	mx_stream_reset(q, stream);
	sim_trace(2, "stream %u of queue pair %#x is reset", stream, q->qpn);
	return 0;
}

static int alloc_page(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	struct ib_uverbs_attr *handle = sim_attr(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	struct sim_obj *o = handle ? sim_add(c, SIM_PAGE, sizeof(*o)) : NULL;

	if (!o)
		return ENOMEM;
	handle->data = o->handle;
	sim_attr_out(sim_attr(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET), &(uint64_t){ (uint64_t)(FIRST_PAGE + o->handle) * PAGE }, 8);
	sim_attr_out(sim_attr(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH), &(uint32_t){ PAGE }, 4);
	sim_attr_out(sim_attr(h, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID), &(uint32_t){ o->handle }, 4);
	return 0;
}

/* What is written to such a page rings nothing: the doorbell records are looked at. */
void *mx_map(struct sim_ctx *c, void *addr, size_t len, int prot, int flags, off_t off)
{
	unsigned command = off / PAGE >> 8;

	if (command == MLX5_IB_MMAP_CORE_CLOCK || command == MLX5_IB_MMAP_CLOCK_INFO)
		return mx_map_clock(addr, len, prot, flags, command);
	if (off % PAGE || len > PAGE || off / PAGE < FIRST_PAGE || !sim_get(c, off / PAGE - FIRST_PAGE, SIM_PAGE)) {
		errno = sim_refuse(EINVAL, "a page of the device at %#llx", (unsigned long long)off);
		return MAP_FAILED;
	}
	return sim_real.mmap(addr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (flags & MAP_FIXED), -1, 0);
}

int mx_ioctl(struct sim_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	struct sim_io none = {};
	struct ib_uverbs_attr *a;

	switch (h->object_id << 16 | h->method_id) {
	case MLX5_IB_OBJECT_DEVX << 16 | MLX5_IB_METHOD_DEVX_OTHER:
		return firmware(h);
	case MLX5_IB_OBJECT_DEVX_OBJ << 16 | MLX5_IB_METHOD_DEVX_OBJ_MODIFY:
		return reset_stream(c, h);
	case MLX5_IB_OBJECT_UAR << 16 | MLX5_IB_METHOD_UAR_OBJ_ALLOC:
		return alloc_page(c, h);
	case MLX5_IB_OBJECT_UAR << 16 | MLX5_IB_METHOD_UAR_OBJ_DESTROY:
		a = sim_attr(h, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
		return a ? sim_destroy(c, a->data, SIM_PAGE, &none) : EINVAL;
	}
	sim_trace(2, "ioctl: object %#x method %#x is not simulated", h->object_id, h->method_id);
	return EPROTONOSUPPORT;
}
