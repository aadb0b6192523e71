//go:build simhca && linux && cgo

/* Datagrams, with the header that the receiver gets in front of them. */
#include "mlx5.h"

enum { GRH = 40, IPV4 = 20, UDP_PROTOCOL = 17 };

static uint16_t checksum(const uint8_t *p, int n)
{
	uint32_t sum = 0;

	for (int i = 0; i < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static bool is_v4(const struct sim_gid *g)
{
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };

	return !memcmp(g->raw, v4, sizeof(v4));
}

/*
 * RoCE v2 over IPv4 has its header in the last 20 of the 40 bytes. The others are
 * undefined (A17.4.5.2), and stay as the receive has them. Answers how many these are.
 */
static int header(uint8_t h[GRH], const struct sim_gid *from, const uint8_t to[16], uint32_t payload, const struct mlx5_wqe_av *av)
{
	uint8_t *ip = h + GRH - IPV4;
	uint16_t sum;

	memset(h, 0, GRH);
	if (from->v2 && is_v4(from)) {
		ip[0] = 0x45;
		ip[1] = av->tclass;
		ip[2] = (payload + IPV4) >> 8;
		ip[3] = payload + IPV4;
		ip[8] = av->hop_limit;
		ip[9] = UDP_PROTOCOL;
		memcpy(ip + 12, from->raw + 12, 4);
		memcpy(ip + 16, to + 12, 4);
		sum = checksum(ip, IPV4);
		ip[10] = sum >> 8;
		ip[11] = sum;
		return GRH - IPV4;
	}
	h[0] = 0x60 | av->tclass >> 4;
	h[1] = av->tclass << 4 | (be32toh(av->grh_gid_fl) >> 16 & 0xf);
	h[2] = be32toh(av->grh_gid_fl) >> 8;
	h[3] = be32toh(av->grh_gid_fl);
	h[4] = payload >> 8;
	h[5] = payload;
	h[6] = from->v2 ? UDP_PROTOCOL : 0x1b;
	h[7] = av->hop_limit;
	memcpy(h + 8, from->raw, 16);
	memcpy(h + 24, to, 16);
	return 0;
}

/*
 * What a completion has where InfiniBand's service level is: on RoCE the kind of the header, as the kernel's
 * driver (MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV4) and UCX read it.
 */
static uint32_t level(const struct sim_device *from, uint32_t index, const struct mlx5_wqe_av *av)
{
	enum { GRH_ALONE, IPV6_HEADER, IPV4_HEADER };
	const struct sim_gid *g;

	if (from->ib)
		return av->stat_rate_sl & 0xf;
	g = &from->gids[index];
	return !g->v2 ? GRH_ALONE : is_v4(g) ? IPV4_HEADER : IPV6_HEADER;
}

/* Whatever is wrong at the other end, the sender does not hear of it. */
int mx_send_datagram(struct mx_qp *q, struct mx_wqe *w, struct mx_pending *p)
{
	struct sim_device *from = q->o.ctx->dev, *d;
	bool global = !from->ib || be32toh(w->av.grh_gid_fl) >> 30 & 1;
	uint32_t key = be32toh(w->av.key.qkey.qkey), index = be32toh(w->av.grh_gid_fl) >> 20 & 0xff;
	bool imm = w->opcode == MLX5_OPCODE_SEND_IMM;
	struct mx_datagram m = { .qpn = mx_av_qpn(&w->av), .imm = imm, .bytes = w->bytes + GRH, .npieces = w->npieces + 1,
		.qkey = key & 0x80000000 ? q->attr.qkey : key };
	enum sim_entry entry;
	uint8_t grh[GRH];
	int status = MX_DONE;

	if (w->bytes > 4096)
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	if (global && index >= (uint32_t)from->ngids)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (global)
		m.undefined = header(grh, &from->gids[index], w->av.rgid, w->bytes, &w->av);
	else
		memset(grh, 0xee, sizeof(grh)); /* undefined */
	m.e.byte_cnt = htobe32(w->bytes + GRH);
	m.e.flags_rqpn = htobe32((uint32_t)global << 28 | level(from, index, &w->av) << 24 | q->qpn);
	m.e.slid = htobe16(from->lid);
	m.e.op_own = w->flags & MLX5_WQE_CTRL_SOLICITED;
	if (imm)
		m.e.imm_inval_pkey = w->imm;
	m.pieces[0] = (struct sim_piece){ grh, GRH };
	memcpy(m.pieces + 1, w->pieces, w->npieces * sizeof(*m.pieces));
	entry = sim_enter(mx_slot_at(from, w->av.rgid, be16toh(w->av.rlid), m.qpn));
	if (entry != SIM_IN)
		return entry == SIM_BUSY ? MX_WAIT : MX_DONE;
	d = mx_device_at(from, w->av.rgid, global, be16toh(w->av.rlid), m.qpn);
	if (d && d->node == sim_self)
		mx_receive_datagram(d, &m);
	else if (d)
		status = mx_post_datagram(q, d, &m, p);
	sim_leave();
	return status;
}

void mx_receive_datagram(struct sim_device *d, const struct mx_datagram *m)
{
	struct mx_qp *t = mx_qp_of(d, m->qpn);
	struct sim_piece undefined = { m->pieces[0].at, m->undefined };
	struct mlx5_cqe64 e = m->e;
	struct mx_recv r;

	if (!t || t->type != IBV_QPT_UD || t->state < IBV_QPS_RTR || t->state > IBV_QPS_SQE)
		return;
	if (t->attr.qkey != m->qkey) {
		sim_trace(1, "a datagram for queue pair %#x with another Q_Key is dropped", t->qpn);
		return;
	}
	if (!mx_take(t, &r)) {
		sim_trace(1, "a datagram for queue pair %#x is dropped: no receive", t->qpn);
		return;
	}
	if (r.protection || r.room < m->bytes) {
		mx_receive_done(t, &r, &e, 0, r.protection ? MLX5_CQE_SYNDROME_LOCAL_PROT_ERR : MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
		mx_fail(t, 0);
		return;
	}
	sim_copy(&undefined, 1, r.pieces, r.npieces);
	sim_copy(r.pieces, r.npieces, m->pieces, m->npieces);
	mx_receive_done(t, &r, &e, m->imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, 0);
}
