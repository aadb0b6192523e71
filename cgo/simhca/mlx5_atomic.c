//go:build simhca && linux && cgo

/*
 * Atomics. The arguments of masked ones are those of libmlx5's struct
 * mlx5_wqe_masked_atomic_seg and UCX' uct_ib_mlx5_atomic_masked_*_seg: swap or
 * add, compare or boundary, swap mask, compare mask. The meaning is that of the
 * extended atomics of the Programmer's Reference Manual.
 */
#include "mlx5.h"

/* 4 or 8; 0: there is no such atomic. UCT_IB_MLX5_OPMOD_EXT_ATOMIC is 8 and the logarithm of a quarter of the size. */
unsigned mx_atomic_size(const struct mx_wqe *w)
{
	if (w->opcode == MLX5_OPCODE_ATOMIC_CS || w->opcode == MLX5_OPCODE_ATOMIC_FA)
		return w->opmod ? 0 : 8;
	return w->opmod == 8 ? 4 : w->opmod == 9 ? 8 : 0;
}

static uint64_t argument(const struct mx_wqe *w, int i)
{
	if (mx_atomic_size(w) == 4) {
		uint32_t v;

		memcpy(&v, w->args + 4 * i, sizeof(v));
		return be32toh(v);
	} else {
		uint64_t v;

		memcpy(&v, w->args + 8 * i, sizeof(v));
		return be64toh(v);
	}
}

/* Bit for bit; what is carried out of a boundary is lost. */
static uint64_t add_fields(uint64_t a, uint64_t b, uint64_t boundary)
{
	uint64_t sum = 0, carry = 0;

	for (int i = 0; i < 64; i++) {
		uint64_t bits = (a >> i & 1) + (b >> i & 1) + carry;

		sum |= (bits & 1) << i;
		carry = boundary >> i & 1 ? 0 : bits >> 1;
	}
	return sum;
}

static uint64_t result(const struct mx_wqe *w, uint64_t old)
{
	switch (w->opcode) {
	case MLX5_OPCODE_ATOMIC_CS:
		return old == argument(w, 1) ? argument(w, 0) : old;
	case MLX5_OPCODE_ATOMIC_FA:
		return old + argument(w, 0);
	case MLX5_OPCODE_ATOMIC_MASKED_CS:
		if ((old ^ argument(w, 1)) & argument(w, 3))
			return old;
		return (old & ~argument(w, 2)) | (argument(w, 0) & argument(w, 2));
	}
	return add_fields(old, argument(w, 0), argument(w, 1));
}

/* Does it to a word of the responder's, and the old value to the requester's memory: 4 bytes big endian, 8 as the host has them. */
static void here(struct mx_wqe *w, uint8_t *word)
{
	struct sim_piece from;
	uint32_t big;
	uint64_t old;

	if (mx_atomic_size(w) == 4) {
		uint32_t v = __atomic_load_n((uint32_t *)word, __ATOMIC_SEQ_CST);

		while (!__atomic_compare_exchange_n((uint32_t *)word, &v, (uint32_t)result(w, v), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		big = htobe32(v);
		from = (struct sim_piece){ (uint8_t *)&big, 4 };
	} else {
		old = __atomic_load_n((uint64_t *)word, __ATOMIC_SEQ_CST);
		while (!__atomic_compare_exchange_n((uint64_t *)word, &old, result(w, old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		from = (struct sim_piece){ (uint8_t *)&old, 8 };
	}
	sim_copy(w->pieces, w->npieces, &from, 1);
}

/* In the memory of another process: an atomic among those that hold the word. */
static int there(struct mx_wqe *w, struct sim_node *far, uint8_t *word)
{
	unsigned size = mx_atomic_size(w);
	uint64_t old = 0, new;
	uint32_t big;
	struct sim_piece at = { word, size }, mine = { (uint8_t *)&old, size };
	int err = sim_transfer(far, false, &mine, 1, &at, 1);

	if (!err) {
		new = result(w, old); /* both processors are of one byte order, little endian for the words of 4 bytes */
		mine.at = (uint8_t *)&new;
		if (memcmp(&new, &old, size))
			err = sim_transfer(far, true, &mine, 1, &at, 1);
	}
	if (err)
		return err == ESRCH ? MX_LOST : MX_REMOTE | MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	mine.at = (uint8_t *)&old;
	if (size == 4) {
		big = htobe32((uint32_t)old);
		mine.at = (uint8_t *)&big;
	}
	sim_copy(w->pieces, w->npieces, &mine, 1);
	return MX_DONE;
}

int mx_atomic(struct mx_wqe *w, struct sim_node *far, uint8_t *word)
{
	int status = MX_DONE;

	if (!sim_hold_word(far, word))
		return MX_WAIT;
	if (far == sim_self)
		here(w, word);
	else
		status = there(w, far, word);
	sim_release_word(far, word);
	return status;
}
