#ifndef SIMHCA_EFA_H
#define SIMHCA_EFA_H

#include "sim.h"
#include <rdma/efa-abi.h>

enum {
	EF_NO_WRITE = 1, EF_REVERSE = 2, EF_RANDOM = 4, /* options */
	EF_MAX_QP = 1024, EF_MAX_SQ = 4096, EF_MAX_RQ = 8192, EF_MAX_CQE = 1 << 15, EF_SGE = 2, EF_INLINE = 32,
	EF_MTU = 8928, EF_MAX_RDMA = 1 << 30, EF_BATCH = 32, EF_MIN_SQ = 16, EF_SUB_CQS = 2, EF_PAGE = 4096,
	EF_CAP_READ = 1, EF_CAP_RNR = 2, EF_CAP_EVENTS = 4, EF_CAP_SGID = 8, EF_CAP_WRITE = 32,
};

/* What lies in the queues, little endian: providers/efa/efa_io_defs.h of rdma-core has the names of the fields. */
struct ef_buffer { uint32_t length, key; uint64_t addr; };

struct ef_entry {
	uint16_t id;
	uint8_t ctrl1, ctrl2;
	uint16_t qpn, length;
	uint32_t imm;
	uint16_t ah;
	uint8_t ctrl3, reserved;
	uint32_t qkey;
	uint8_t reserved2[12];
	union {
		struct ef_buffer list[EF_SGE]; /* for RDMA the far side is first */
		uint8_t data[EF_INLINE];
	};
};

struct ef_receive { uint64_t addr; uint16_t id, length; uint32_t ctrl; };

struct ef_completion {
	uint16_t id;
	uint8_t status, flags;
	uint16_t qpn, length, ah, src;
	uint32_t imm;
	uint8_t more[16]; /* in queues with the sender's address */
};

_Static_assert(sizeof(struct ef_entry) == 64 && sizeof(struct ef_receive) == 16 && sizeof(struct ef_completion) == 32, "layout");

enum { EF_SEND, EF_READ, EF_WRITE };                              /* operations */
enum { EF_CTRL_OP = 0xf, EF_CTRL_IMM = 0x10, EF_CTRL_INLINE = 0x20, EF_CTRL_EXTENSION = 0x40, EF_CTRL_META = 0x80 };
enum { EF_CTRL_FIRST = 4, EF_CTRL_LAST = 8, EF_CTRL_COMPLETION = 0x10 };
enum {
	EF_OK, EF_FLUSHED, EF_INTERNAL, EF_BAD_OP, EF_BAD_AH, EF_BAD_LKEY, EF_BAD_LENGTH, EF_FAR_ADDRESS, EF_FAR_ABORT, EF_FAR_QPN,
	EF_FAR_RNR, EF_FAR_LENGTH, EF_FAR_STATUS, EF_UNRESPONSIVE, EF_UNKNOWN_PEER, EF_WAIT = 0x100,
};

/* Memory that libefa maps from the device's file, mapped twice: libefa lets go of it before it destroys the object. */
struct ef_region {
	struct sim_ctx *ctx;
	int fd;
	uint64_t key, len;
	uint8_t *at;
	struct ef_region *next;
};

struct ef_cq {
	struct sim_obj o;
	struct ef_region *mem, *page;
	uint32_t *db, count, size, pi[EF_SUB_CQS];
	uint16_t consumed;
	bool armed, hooked, overrun;
};

struct ef_ah {
	struct sim_obj o;
	uint16_t number;
	uint8_t gid[16];
	struct ef_ah *next_at, *next_of; /* with the same hash of the address, of the number */
};

enum { EF_CHAINS = 256, EF_AH_NUMBERS = 0xfff0 };

struct ef_pd {
	struct sim_obj o;
	struct ef_ah *at[EF_CHAINS], *of[EF_CHAINS];
};

/* A request under way. */
struct ef_request {
	struct ef_entry e;
	uint64_t due, since;
	struct ef_request *next;
};

struct ef_qp {
	struct sim_obj o;
	bool ud;
	int state;
	uint16_t qpn, sq_next, rq_next;
	uint32_t qkey, psn, rnr, sq_count, rq_count;
	struct ef_cq *scq, *rcq;
	struct ef_region *sq_mem, *rq_mem, *page;
	struct ef_entry *sq;
	struct ef_receive *rq;
	uint32_t *sq_db, *rq_db;
	struct ef_request *requests;
	struct ib_uverbs_create_qp made;
};

/* efa_device.c */
uint32_t ef_caps(const struct sim_device *);
struct ef_region *ef_region(struct sim_ctx *, size_t len);
void ef_region_drop(struct ef_region *);
struct sim_device *ef_device_at(struct sim_device *from, const uint8_t gid[16]);

/* efa_address.c */
int ef_alloc_pd(struct sim_ctx *, struct sim_io *);
int ef_create_ah(struct sim_ctx *, struct sim_io *);
void ef_ah_forget(struct ef_ah *);
/* The handle that a protection domain has for an address, or NULL. */
struct ef_ah *ef_ah_to(struct sim_obj *pd, const uint8_t gid[16]);
/* The same for a number. */
struct ef_ah *ef_ah_of(struct sim_obj *pd, uint16_t number);

/* efa_create.c */
int ef_create_cq(struct sim_ctx *, bool ex, struct sim_io *);
int ef_create_qp(struct sim_ctx *, bool ex, struct sim_io *);
int ef_modify_qp(struct sim_ctx *, struct sim_io *);
int ef_query_qp(struct sim_ctx *, struct sim_io *);
struct ef_qp *ef_qp_of(struct sim_device *, uint16_t qpn);
void ef_qp_forget(struct ef_qp *);

/* efa_cq.c */
enum { EF_SENDS, EF_RECEIVES };
void ef_complete(struct ef_cq *, int which, struct ef_completion *, int op, bool imm);
bool ef_cq_work(struct ef_cq *);
void ef_cq_hook(struct ef_cq *);

/* efa_run.c, efa_queue.c */
int ef_run(struct ef_qp *, struct ef_request *);
bool ef_qp_work(struct ef_qp *);
bool ef_take(struct ef_qp *, struct sim_piece *pieces, int *n, uint64_t *room, uint16_t *id, bool *bad);
void ef_receive_done(struct ef_qp *, uint16_t id, int status, uint64_t bytes, struct ef_qp *from, const struct ef_entry *);

#endif
