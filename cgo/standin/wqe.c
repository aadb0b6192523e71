//go:build linux && cgo

/*
 * Work queue entries of masked atomics, made by the structures and functions of
 * rdma-core's public header infiniband/mlx5dv.h. That header has the opcodes and
 * not the arguments; theirs are in struct mlx5_wqe_masked_atomic_seg
 * (rdma-core's providers/mlx5/wqe.h and Linux' include/linux/mlx5/qp.h) for 64
 * bits, and as UCX has them (uct/ib/mlx5/ib_mlx5.h, struct
 * uct_ib_mlx5_atomic_masked_*_seg and UCT_IB_MLX5_OPMOD_EXT_ATOMIC) for all.
 */
#include "wqe.h"
#include <string.h>

struct cmp_swap64 {
	__be64 swap, compare, swap_mask, compare_mask;
};

struct cmp_swap32 {
	__be32 swap, compare, swap_mask, compare_mask;
};

struct fetch_add64 {
	__be64 add, boundary;
};

struct fetch_add32 {
	__be32 add, boundary, reserved[2];
};

/* Extended atomics: 8, and the logarithm of the size counted from 4 bytes. */
#define OPMOD(bytes) (8 | ((bytes) == 8))

int standin_masked_wqe(const struct standin_masked *in, uint8_t *out)
{
	int bytes = in->bits32 ? 4 : 8;
	uint8_t *at = out + sizeof(struct mlx5_wqe_ctrl_seg);
	struct mlx5_wqe_ctrl_seg ctrl = {};
	struct mlx5_wqe_raddr_seg to = { .raddr = htobe64(in->addr), .rkey = htobe32(in->rkey) };
	struct mlx5_wqe_data_seg result = {};

#define ADD(s) do { memcpy(at, &(s), sizeof(s)); at += sizeof(s); } while (0)
	if (in->dct) {
		struct mlx5_wqe_av av;

		memcpy(&av, in->av, sizeof(av));
		av.key.dc_key = htobe64(in->dc_key);
		av.dqp_dct = htobe32(in->dct | MLX5_EXTENDED_UD_AV);
		ADD(av);
	}
	ADD(to);
	if (in->add && in->bits32) {
		struct fetch_add32 a = { .add = htobe32(in->operand), .boundary = htobe32(in->boundary) };

		ADD(a);
	} else if (in->add) {
		struct fetch_add64 a = { htobe64(in->operand), htobe64(in->boundary) };

		ADD(a);
	} else if (in->bits32) {
		struct cmp_swap32 a = { htobe32(in->operand), htobe32(in->compare), htobe32(in->swap_mask), htobe32(in->compare_mask) };

		ADD(a);
	} else {
		struct cmp_swap64 a = { htobe64(in->operand), htobe64(in->compare), htobe64(in->swap_mask), htobe64(in->compare_mask) };

		ADD(a);
	}
	mlx5dv_set_data_seg(&result, bytes, in->lkey, in->result);
	ADD(result);
#undef ADD
	mlx5dv_set_ctrl_seg(&ctrl, 0, in->add ? MLX5_OPCODE_ATOMIC_MASKED_FA : MLX5_OPCODE_ATOMIC_MASKED_CS, OPMOD(bytes), in->qpn,
			    (in->signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) | (in->fence ? MLX5_WQE_CTRL_FENCE : 0), (at - out) / 16, 0, 0);
	ctrl.dci_stream_channel_id = htobe16(in->stream);
	memcpy(out, &ctrl, sizeof(ctrl));
	return at - out;
}
