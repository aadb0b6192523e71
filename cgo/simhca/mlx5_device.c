//go:build simhca && linux && cgo

/* What an mlx5 device says of itself: a ConnectX-6 Dx with one port. */
#include "mlx5.h"
#include <net/if.h>
#include <stdio.h>

static bool option(struct sim_device *d, const char *name)
{
	if (!strcmp(name, "ib"))
		d->ib = true;
	else if (!strcmp(name, "ipv4"))
		d->options |= MX_IPV4;
	else if (!strcmp(name, "latereads"))
		d->options |= MX_LATE_READS;
	else if (!strcmp(name, "torn"))
		d->options |= MX_TORN;
	else
		return false;
	return true;
}

/* An entry of RoCE v1, and one of v2. */
static void add_address(struct sim_device *d, const uint8_t address[16])
{
	for (int v2 = 0; v2 < 2; v2++) {
		memcpy(d->gids[d->ngids].raw, address, 16);
		d->gids[d->ngids++].v2 = v2;
	}
}

static void init(struct sim_device *d)
{
	uint8_t link[16] = { 0xfe, 0x80 }, own[16] = { 0xfd, [14] = (d->id + 1) >> 8, d->id + 1 }, v4[16] = { [10] = 0xff, 0xff };
	static const uint8_t loopback[16] = { [15] = 1 };

	d->part = 0x101d;
	d->lid = d->ib ? d->id + 1 : 0;
	d->guid = 0x0200c0fffe510000ull | d->id;
	memcpy(link + 8, &(uint64_t){ htobe64(d->guid) }, 8);
	if (d->ib) {
		memcpy(d->gids[d->ngids++].raw, link, 16);
		return;
	}
	d->address = sim_address + d->number;
	memcpy(v4 + 12, &(uint32_t){ htobe32(d->address) }, 4);
	add_address(d, link);
	if (!(d->options & MX_IPV4))
		add_address(d, own);
	if (d->options & MX_IPV4 || sim_in_fabric())
		add_address(d, v4);
	if (sim_in_fabric())
		add_address(d, loopback);
}

/* Addresses of lo, which several devices have: the number of the queue pair tells which of them is meant. */
static bool shared(const struct sim_device *from, const uint8_t gid[16])
{
	static const uint8_t v4[13] = { [10] = 0xff, 0xff, 127 }, v6[16] = { [15] = 1 };

	return !from->ib && (!memcmp(gid, v4, sizeof(v4)) || !memcmp(gid, v6, sizeof(v6)));
}

/* The number of the device that could have an address that is not shared, or -1: such addresses are made of it (init). */
static int address_id(const struct sim_device *from, const uint8_t gid[16], uint16_t lid)
{
	int last = gid[14] << 8 | gid[15];

	return from->ib ? lid - 1 : gid[0] == 0xfe ? last : last - 1;
}

/* The slot of the process that could have a queue pair at an address, or -1. */
int mx_slot_at(struct sim_device *from, const uint8_t gid[16], uint16_t lid, uint32_t qpn)
{
	int id;

	if (shared(from, gid))
		return mx_slot_of(qpn);
	id = address_id(from, gid, lid);
	return id < 0 ? -1 : id / SIM_DEVICES;
}

/*
 * The device of a queue pair at an address, if the one that asks reaches it. In a process that is
 * not this one: between sim_enter and sim_leave.
 */
struct sim_device *mx_device_at(struct sim_device *from, const uint8_t gid[16], bool global, uint16_t lid, uint32_t qpn)
{
	struct sim_node *n = sim_node_of(mx_slot_at(from, gid, lid, qpn));
	int id = address_id(from, gid, lid);
	struct sim_device *d = NULL;

	if (n && shared(from, gid))
		d = mx_device_of(n, qpn);
	else if (n && id % SIM_DEVICES < n->ndevices)
		d = &n->devices[id % SIM_DEVICES];
	/* In a fabric all devices are of this model; models of other processes lie elsewhere. */
	if (!d || (n == sim_self && d->model != &sim_mlx5) || d->ib != from->ib || d->removed || from->removed || (d->ib && d->lid != lid))
		return NULL;
	if (!global && d->ib)
		return d;
	for (int k = 0; global && k < d->ngids; k++)
		if (!memcmp(d->gids[k].raw, gid, 16))
			return d;
	return NULL;
}

/* The IPv4 address of the device at an address, as far as it can be known without a look at the queue pair, or 0. */
uint32_t mx_address_at(struct sim_device *from, const uint8_t gid[16], uint16_t lid, uint32_t qpn)
{
	struct sim_node *n = sim_node_of(mx_slot_at(from, gid, lid, qpn));
	uint32_t v4;

	memcpy(&v4, gid + 12, sizeof(v4));
	if (shared(from, gid))
		return gid[10] ? be32toh(v4) : n ? n->devices[0].address : 0;
	return n ? n->devices[address_id(from, gid, lid) % SIM_DEVICES].address : 0;
}

int mx_get_context(struct sim_ctx *c, struct sim_io *io)
{
	SIM_DRIVER_IN(mlx5_ib_alloc_ucontext_req_v2, a);
	struct ib_uverbs_get_context_resp r = { .async_fd = c->async.reader, .num_comp_vectors = MX_VECTORS };
	struct mlx5_ib_alloc_ucontext_resp u = {
		.qp_tab_size = 1 << 18, .bf_reg_size = 512, .cache_line_size = 64, .max_sq_desc_sz = MX_MAX_ENTRY, .max_rq_desc_sz = 512,
		.max_send_wqebb = MX_MAX_ENTRIES, .max_recv_wr = MX_MAX_ENTRIES, .max_srq_recv_wr = MX_MAX_ENTRIES - 1, .num_ports = 1,
		.response_length = sizeof(u), .cqe_version = 1,
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET | MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE, .clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.eth_min_inline = MLX5_USER_INLINE_MODE_NONE, .log_uar_size = 12, .num_uars_per_page = 1,
	};

	/* Pages of doorbells are objects of their own, since Linux 5.7. */
	if (!(a.lib_caps & MLX5_LIB_CAP_DYN_UAR) || a.max_cqe_version < 1)
		return sim_refuse(EOPNOTSUPP, "libmlx5 is too old");
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

int mx_query_device(struct sim_ctx *c, bool ex, struct sim_io *io)
{
	struct ib_uverbs_ex_query_device_resp r = { .response_length = sizeof(r), .timestamp_mask = ~0ull, .hca_core_clock = 1000000,
		.cq_moderation_caps = { MX_MAX_MODERATION, MX_MAX_PERIOD } };
	struct mlx5_ib_query_device_resp u = { .response_length = sizeof(u), .dci_streams_caps = { MX_STREAMS_LOG, MX_STREAMS_LOG } };

	r.base = (struct ib_uverbs_query_device_resp){
		.fw_ver = 20ull << 32 | 99 << 16 | 1, .node_guid = htobe64(c->dev->guid), .sys_image_guid = htobe64(c->dev->guid), .max_mr_size = ~0ull,
		.page_size_cap = ~0xfffull, .vendor_id = 0x2c9, .vendor_part_id = c->dev->part,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_CURR_QP_STATE_MOD |
			IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_qp = 8192, .max_qp_wr = MX_MAX_ENTRIES, .max_sge = MX_MAX_SGE, .max_sge_rd = MX_MAX_SGE, .max_cq = 8192, .max_cqe = MX_MAX_CQE - 1,
		.max_mr = 16384, .max_mw = 16384, .max_pd = 4096, .max_qp_rd_atom = MX_MAX_READS, .max_res_rd_atom = 8192 * MX_MAX_READS, .max_qp_init_rd_atom = MX_MAX_READS,
		.atomic_cap = IBV_ATOMIC_HCA, .max_ah = 16384, .max_srq = 4096, .max_srq_wr = MX_MAX_ENTRIES - 1, .max_srq_sge = 31, .max_pkeys = 1,
		.local_ca_ack_delay = 16, .phys_port_cnt = 1,
	};
	if (!ex) {
		SIM_OUT(r.base);
		return 0;
	}
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

int mx_query_port(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_query_port, a);
	const struct sim_device *d = c->dev;
	struct ib_uverbs_query_port_resp r = {
		.port_cap_flags = d->ib ? 0 : IBV_PORT_IP_BASED_GIDS, .max_msg_sz = MX_MAX_MESSAGE, .gid_tbl_len = d->ngids, .pkey_tbl_len = 1,
		.lid = d->lid, .sm_lid = d->ib, .state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .max_vl_num = 1,
		.active_width = 2, .active_speed = 32, .phys_state = 5, .link_layer = d->ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
	};

	if (a.port_num != 1)
		return sim_refuse(EINVAL, "port %u", a.port_num);
	SIM_OUT(r);
	return 0;
}

/* A way to a peer that the kernel would take. On RoCE both addresses are of one family. */
int mx_check_path(struct sim_ctx *c, const uint8_t *dgid, bool global, uint8_t sgid_index, uint8_t port)
{
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };

	if (port != 1)
		return sim_refuse(EINVAL, "port %u of a path", port);
	if (!global)
		return c->dev->ib ? 0 : sim_refuse(EINVAL, "a path without GRH on RoCE");
	if (sgid_index >= c->dev->ngids)
		return sim_refuse(EINVAL, "GID index %u", sgid_index);
	if (dgid && !c->dev->ib && !memcmp(dgid, v4, 12) != !memcmp(c->dev->gids[sgid_index].raw, v4, 12))
		return sim_refuse(EINVAL, "a path between addresses of IPv4 and IPv6");
	return 0;
}

int mx_create_ah(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_create_ah, a);
	struct sim_obj *pd = sim_get(c, a.pd_handle, SIM_PD), *o;
	struct ib_uverbs_create_ah_resp r = {};
	struct mlx5_ib_create_ah_resp u = { .response_length = sizeof(u), .dmac = { 2, 0, 0, 0, 0, 1 } };
	int err;

	if (!pd)
		return sim_refuse(EINVAL, "an address handle without a protection domain");
	err = mx_check_path(c, a.attr.grh.dgid, a.attr.is_global, a.attr.grh.sgid_index, a.attr.port_num);
	if (err)
		return err;
	o = sim_add(c, SIM_AH, sizeof(*o));
	if (!o)
		return ENOMEM;
	sim_hold(pd, o);
	r.ah_handle = o->handle;
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

static int alloc_pd(struct sim_ctx *c, struct sim_io *io)
{
	struct sim_obj *o = sim_add(c, SIM_PD, sizeof(*o));
	struct ib_uverbs_alloc_pd_resp r;
	struct mlx5_ib_alloc_pd_resp u;

	if (!o)
		return ENOMEM;
	r.pd_handle = u.pdn = o->handle;
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

static int command(struct sim_ctx *c, uint32_t cmd, bool ex, struct sim_io *io)
{
	if (ex) { /* numbered with the others */
		switch (cmd) {
		case IB_USER_VERBS_CMD_QUERY_DEVICE: case IB_USER_VERBS_CMD_CREATE_CQ: case IB_USER_VERBS_CMD_CREATE_QP: case IB_USER_VERBS_CMD_MODIFY_QP:
			break;
		case IB_USER_VERBS_EX_CMD_MODIFY_CQ:
			return mx_modify_cq(c, io);
		default:
			return sim_refuse(EOPNOTSUPP, "extended command %u is not simulated", cmd);
		}
	}
	switch (cmd) {
	case IB_USER_VERBS_CMD_GET_CONTEXT: return mx_get_context(c, io);
	case IB_USER_VERBS_CMD_QUERY_DEVICE: return mx_query_device(c, ex, io);
	case IB_USER_VERBS_CMD_QUERY_PORT: return mx_query_port(c, io);
	case IB_USER_VERBS_CMD_ALLOC_PD: return alloc_pd(c, io);
	case IB_USER_VERBS_CMD_REG_MR: return sim_reg_mr(c, io, MX_REGION_RIGHTS);
	case IB_USER_VERBS_CMD_REREG_MR: return sim_rereg_mr(c, io, MX_REGION_RIGHTS);
	case IB_USER_VERBS_CMD_ALLOC_MW: return mx_alloc_window(c, io);
	case IB_USER_VERBS_CMD_CREATE_AH: return mx_create_ah(c, io);
	case IB_USER_VERBS_CMD_CREATE_CQ: return mx_create_cq(c, ex, io);
	case IB_USER_VERBS_CMD_RESIZE_CQ: return mx_resize_cq(c, io);
	case IB_USER_VERBS_CMD_CREATE_SRQ: return mx_create_srq(c, io);
	case IB_USER_VERBS_CMD_MODIFY_SRQ: return mx_modify_srq(c, io);
	case IB_USER_VERBS_CMD_QUERY_SRQ: return mx_query_srq(c, io);
	case IB_USER_VERBS_CMD_CREATE_QP: return mx_create_qp(c, ex, io);
	case IB_USER_VERBS_CMD_MODIFY_QP: return mx_modify_qp(c, ex, io);
	case IB_USER_VERBS_CMD_QUERY_QP: return mx_query_qp(c, io);
	}
	return SIM_COMMON;
}

static bool work(struct sim_obj *o)
{
	return o->kind == SIM_CQ ? mx_cq_work((struct mx_cq *)o) : mx_qp_work((struct mx_qp *)o);
}

static void release(struct sim_obj *o)
{
	if (o->kind == SIM_QP) {
		struct mx_qp *q = (struct mx_qp *)o;

		q->scq->o.refs--;
		q->rcq->o.refs--;
		if (q->srq)
			q->srq->o.refs--;
		mx_recall_all(q);
		sim_fault_end(o, q->qpn);
	}
}

const struct sim_model sim_mlx5 = {
	.name = "mlx5", .option = option, .init = init, .command = command, .ioctl = mx_ioctl, .map = mx_map, .work = work, .tick = mx_tick,
	.arrive = mx_arrive, .find_qp = mx_find_qp, .fail_qp = mx_fail_qp, .release = release,
};
