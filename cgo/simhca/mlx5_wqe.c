//go:build simhca && linux && cgo

/*
 * Work queue entries. Everything is big endian, in segments of 16 bytes:
 *
 *	control | [address vector, 3] | [remote address | [arguments, 1 or 2]] | data ...
 *
 * What the Programmer's Reference Manual calls reserved has to be zero.
 */
#include "mlx5.h"

void mx_load(struct mx_qp *q, uint16_t at, struct mx_wqe *w)
{
	uint8_t *entry = q->sq + (size_t)(at & (q->sq_count - 1)) * MX_ENTRY, *end = q->sq + (size_t)q->sq_count * MX_ENTRY;
	struct mlx5_wqe_ctrl_seg c;
	uint32_t code, ds;

	memset(w, 0, offsetof(struct mx_wqe, raw));
	memcpy(&c, entry, sizeof(c));
	code = be32toh(c.opmod_idx_opcode);
	ds = be32toh(c.qpn_ds);
	w->at = at;
	w->opcode = code;
	w->opmod = code >> 24;
	w->segments = ds & 0x3f;
	w->flags = c.fm_ce_se;
	w->imm = c.imm;
	/* Without them, and without signatures, these bytes say nothing: UCX leaves there what was before. */
	w->stream = q->streams ? be16toh(c.dci_stream_channel_id) : 0;
	if ((uint16_t)(code >> 8) != at)
		w->flaw = "the index of another entry";
	else if (ds >> 8 != q->qpn)
		w->flaw = "the number of another queue pair";
	else if (ds & 0xc0 || !w->segments || w->segments * MX_SEGMENT > MX_MAX_ENTRY)
		w->flaw = "a size that it cannot have";
	else if (w->flags & 0x11)
		w->flaw = "reserved flags";
	for (int i = 1; i < w->segments; i++) {
		uint8_t *s = entry + i * MX_SEGMENT;

		memcpy(w->raw + w->len, s < end ? s : s - (size_t)q->sq_count * MX_ENTRY, MX_SEGMENT);
		w->len += MX_SEGMENT;
	}
}

/* Takes n bytes from what has not been decoded yet. */
static const void *take(struct mx_wqe *w, size_t *at, size_t n)
{
	const void *p = w->raw + *at;

	if (*at + n > w->len) {
		w->flaw = "fewer segments than its opcode needs";
		return NULL;
	}
	*at += n;
	return p;
}

/* Bytes of arguments: each a 32 or 64 bit word, as struct mlx5_wqe_masked_atomic_seg of libmlx5 and UCX have them. */
static size_t arguments(const struct mx_wqe *w)
{
	return w->opcode == MLX5_OPCODE_ATOMIC_MASKED_CS && mx_atomic_size(w) == 8 ? 32 : 16;
}

static bool decode_remote(struct mx_wqe *w, size_t *at)
{
	const struct mlx5_wqe_raddr_seg *r;
	const uint8_t *args;

	if (!(r = take(w, at, sizeof(*r))))
		return false;
	if (r->reserved) {
		w->flaw = "a remote address with something reserved";
		return false;
	}
	w->raddr = be64toh(r->raddr);
	w->rkey = be32toh(r->rkey);
	if (!mx_is_atomic(w->opcode))
		return true;
	if (!(args = take(w, at, arguments(w))))
		return false;
	memcpy(w->args, args, arguments(w));
	return true;
}

static bool decode_inline(struct mx_wqe *w, size_t *at, uint32_t n)
{
	n &= 0x3ff;
	if (*at + 4 + n > w->len) {
		w->flaw = "more inline data than there is";
		return false;
	}
	w->pieces[w->npieces++] = (struct sim_piece){ w->raw + *at + 4, n };
	w->bytes += n;
	*at += (4 + n + MX_SEGMENT - 1) / MX_SEGMENT * MX_SEGMENT;
	return true;
}

static void decode_data(struct mx_qp *q, struct mx_wqe *w, size_t *at)
{
	bool writes = w->opcode == MLX5_OPCODE_RDMA_READ || mx_is_atomic(w->opcode);

	while (*at < w->len) {
		struct mlx5_wqe_data_seg s;
		uint64_t n;
		uint8_t *p;

		memcpy(&s, w->raw + *at, sizeof(s));
		n = be32toh(s.byte_count);
		if (n & MLX5_INLINE_SEG) {
			if (writes) {
				w->flaw = "inline data to be written to";
				return;
			}
			if (!decode_inline(w, at, n))
				return;
			continue;
		}
		*at += sizeof(s);
		n = n ? n : 1ull << 31; /* so the device takes a length of 0 */
		p = sim_memory(q->o.pd, be32toh(s.lkey), false, be64toh(s.addr), n, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
		w->protection |= !p;
		w->pieces[w->npieces++] = (struct sim_piece){ p, n };
		w->bytes += n;
	}
}

static bool known(struct mx_qp *q, const struct mx_wqe *w)
{
	bool uc = q->type == IBV_QPT_UC, ud = q->type == IBV_QPT_UD;

	switch (w->opcode) {
	case MLX5_OPCODE_NOP: case MLX5_OPCODE_SEND: case MLX5_OPCODE_SEND_IMM:
		return true;
	case MLX5_OPCODE_RDMA_WRITE: case MLX5_OPCODE_RDMA_WRITE_IMM: case MLX5_OPCODE_SEND_INVAL:
		return !ud;
	case MLX5_OPCODE_UMR:
		return !ud && !q->dci;
	case MLX5_OPCODE_RDMA_READ: case MLX5_OPCODE_ATOMIC_CS: case MLX5_OPCODE_ATOMIC_FA: case MLX5_OPCODE_ATOMIC_MASKED_CS: case MLX5_OPCODE_ATOMIC_MASKED_FA:
		return !uc && !ud;
	}
	return false;
}

static bool decode_address(struct mx_qp *q, struct mx_wqe *w, size_t *at)
{
	const struct mlx5_wqe_av *av;
	uint32_t grh;

	if (!(av = take(w, at, sizeof(*av))))
		return false;
	w->av = *av;
	w->has_av = true;
	grh = be32toh(av->grh_gid_fl) >> 30 & 1;
	if (!(be32toh(av->dqp_dct) & MLX5_EXTENDED_UD_AV))
		w->flaw = "an address without its extension bit";
	else if (be32toh(av->dqp_dct) & 0x7f000000)
		w->flaw = "an address with something reserved";
	else if (!q->o.ctx->dev->ib && grh)
		w->flaw = "the GRH bit of InfiniBand on RoCE";
	return !w->flaw;
}

void mx_decode(struct mx_qp *q, struct mx_wqe *w)
{
	size_t at = 0;

	if (w->flaw)
		return;
	if (!known(q, w))
		w->flaw = "an opcode that such a queue pair does not have";
	else if (w->opmod && (w->opcode != MLX5_OPCODE_ATOMIC_MASKED_CS && w->opcode != MLX5_OPCODE_ATOMIC_MASKED_FA))
		w->flaw = "a modifier of its opcode";
	else if (mx_is_atomic(w->opcode) && !mx_atomic_size(w))
		w->flaw = "an atomic of a size that the device does not have";
	if (w->flaw || w->opcode == MLX5_OPCODE_NOP)
		return;
	if (w->opcode == MLX5_OPCODE_UMR) {
		if (w->len < sizeof(struct mlx5_wqe_umr_ctrl_seg) + sizeof(struct mlx5_wqe_mkey_context_seg))
			w->flaw = "fewer segments than its opcode needs";
		return;
	}
	if ((q->dci || q->type == IBV_QPT_UD) && !decode_address(q, w, &at))
		return;
	if (!mx_is_send(w->opcode) && !decode_remote(w, &at))
		return;
	decode_data(q, w, &at);
	if (!w->flaw && mx_is_atomic(w->opcode) && w->bytes != mx_atomic_size(w))
		w->flaw = "an atomic whose result has another size";
}
