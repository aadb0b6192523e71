#ifndef GOVERBS_WQE_H
#define GOVERBS_WQE_H

#include <endian.h>
#include <stdint.h>
#include <infiniband/mlx5dv.h>

struct standin_masked {
	int add, bits32, signaled, fence;
	uint32_t qpn, rkey, lkey;
	uint64_t addr, result;
	uint64_t operand, boundary, compare, swap_mask, compare_mask;
	uint32_t dct, stream; /* of a DCI, or 0 */
	uint64_t dc_key;
	uint8_t av[48];
};

/* Writes an entry, at most 128 bytes, and answers its length. */
int standin_masked_wqe(const struct standin_masked *in, uint8_t *out);

#endif
