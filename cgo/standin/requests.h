#ifndef GOVERBS_REQUESTS_H
#define GOVERBS_REQUESTS_H

#include <stdint.h>
#include <infiniband/verbs.h>

/* A queue pair, the queue of its completions, and the memory at both ends. */
struct standin_requester {
	uintptr_t qp, cq;
	uint64_t addr, raddr;
	uint32_t lkey, rkey;
};

/* Each returns how long all of it took, in ns, or -1. */

/* READs of length bytes, by lists, of which the last one is signaled. Extra turns of an empty loop are in each list. */
int64_t standin_reads(const struct standin_requester *r, uint32_t length, int list, int extra, int lists);

/* One READ; 0 or -1. */
int standin_read(const struct standin_requester *r, uint32_t length);

/* CMP_SWAP of a lock of 8 bytes and a READ of the length bytes behind it; then WRITE and unlock. */
int64_t standin_updates(const struct standin_requester *r, uint32_t length, int n);

/* A DCT at a GID, which the port reaches from its own GID of that index. */
struct standin_dct {
	uint64_t key;
	uint32_t number;
	uint8_t gid[16], index;
};

/* READs of length bytes by a DCI without streams, one after the other. */
int64_t standin_dct_reads(const struct standin_requester *r, const struct standin_dct *to, uint32_t length, int n);

/* A UD queue pair, whose completions of both kinds come to one queue, and its memory. */
struct standin_datagrams {
	uintptr_t qp, cq;
	uint64_t addr;
	uint32_t lkey, qkey;
	uint8_t gid[16], index;
};

/* One message each way, in turn, with receives in place. */
int64_t standin_pingpong(const struct standin_datagrams *a, const struct standin_datagrams *b, uint32_t length, int n);

/* The same with a thread for b. Both wait for their queue's events, and the queues have channels. */
int64_t standin_waited_pingpong(const struct standin_datagrams *a, const struct standin_datagrams *b, uint32_t length, int n);

#endif
