#ifndef SIMHCA_MLX5_H
#define SIMHCA_MLX5_H

#include "sim.h"
#include <endian.h>
#include <rdma/mlx5-abi.h>
#include <infiniband/mlx5dv.h>

enum {
	MX_IPV4 = 1, MX_LATE_READS = 2, MX_TORN = 4, /* options */
	MX_QPN0 = 0x1000,               /* with the slot of its process in the upper bits, and with its handle, the number of a queue pair */
	MX_MAX_ENTRIES = 1 << 15, MX_MAX_CQE = 1 << 22, MX_MAX_SGE = 30, MX_MAX_READS = 16,
	MX_ENTRY = 64, MX_SEGMENT = 16, MX_MAX_ENTRY = 1024,
	MX_VECTORS = 4, MX_STREAMS_LOG = 3, MX_STREAMS = 1 << MX_STREAMS_LOG,
	MX_PENDING = 64,
	MX_MAX_MESSAGE = 1 << 30,
	MX_MAX_MODERATION = 0xffff, MX_MAX_PERIOD = 0xfff, /* completions, us */
};

#define MX_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
/* Options of enhanced connection establishment, with a version in the upper bits. */
#define MX_ECE_VERSION 0xf0000000u
#define MX_ECE 0x30000006u

#define MX_REGION_RIGHTS (MX_RIGHTS | IBV_ACCESS_MW_BIND)

struct mx_cq {
	struct sim_obj o;
	uint8_t *buf;
	uint32_t *db; /* what is consumed, and the arming */
	uint32_t count, size, pi;
	bool armed, solicited, overrun, overwrites;
	uint32_t enough, period; /* completions, and us since the first of them, before an event */
	uint32_t waiting;          /* completions for which there will be one */
	uint64_t since;
};

struct mx_srq {
	struct sim_obj o;
	uint8_t *buf;
	uint32_t *db;
	uint32_t count, shift, max_sge, limit;
	uint16_t head, taken;
};

/* A request that is posted and has not completed. */
struct mx_pending {
	uint16_t at, blocks, stream;
	bool begun;
	bool early;     /* executed before its turn */
	enum { MX_UNDECIDED, MX_LATE, MX_ON_TIME } late; /* a READ */
	uint64_t since; /* when it began to wait for the other side, or 0 */
	uint64_t until; /* it does nothing before that time, or 0 */
	uint16_t steps; /* parts of its data that were moved */
	uint16_t first; /* which of them was */
	struct sim_message *message; /* that was sent for it, or NULL */
	uint64_t serial; /* of it */
	int receiver;
	/* On an impaired way: how far it is, when it goes on, and how it has ended. */
	uint8_t leg, tries;
	uint32_t packet; /* that is next */
	uint64_t due;
	int status;
};

struct mx_qp {
	struct sim_obj o;
	enum ibv_qp_type type;
	bool dci, dct;
	int state;
	struct mx_cq *scq, *rcq;
	struct mx_srq *srq;
	uint8_t *sq, *rq;
	uint32_t sq_count, rq_count, rq_shift, *db;
	uint16_t sq_next, rq_next; /* the device's places */
	struct mx_pending pending[MX_PENDING];
	int npending;
	uint32_t qpn, uidx, ece;
	uint64_t dc_key;
	uint32_t send_psn, recv_psn;
	bool last_receive_told, drain_told;
	uint32_t failed; /* by a request of another process: the event, or 0 */
	struct ib_uverbs_create_qp made;
	struct ib_uverbs_modify_qp attr;
	uint8_t streams, bad_streams; /* how many go on at once, and how many in error are too many */
	uint16_t in_error[MX_STREAMS]; /* numbers of streams */
	int nin_error;
};

/* A work queue entry, decoded. */
struct mx_wqe {
	uint16_t at, stream;
	uint8_t opcode, opmod, segments, flags;
	uint32_t imm; /* as it is there */
	const char *flaw;
	struct mlx5_wqe_av av;
	bool has_av;
	uint64_t raddr;
	uint32_t rkey;
	uint8_t args[32];
	struct sim_piece pieces[MX_MAX_ENTRY / MX_SEGMENT];
	int npieces;
	bool protection; /* a piece of memory that is not to be had */
	uint64_t bytes;
	size_t len;
	uint8_t raw[MX_MAX_ENTRY + MX_ENTRY];
};

/* A receive that was taken from its queue. */
struct mx_recv {
	struct sim_piece pieces[64];
	int npieces;
	uint64_t room;
	uint16_t index;
	bool protection;
};

/* A datagram on its way. */
struct mx_datagram {
	struct mlx5_cqe64 e;
	uint32_t qpn, qkey, npieces;
	uint32_t undefined; /* bytes in front */
	uint64_t bytes; /* with the route header */
	bool imm;
	struct sim_piece pieces[MX_MAX_ENTRY / MX_SEGMENT + 1];
};

/* How a request ended: MX_DONE, MX_WAIT, MX_LOST without an answer, MX_NOT_READY without a receive, or a syndrome, perhaps from the other side. */
enum { MX_DONE = 0, MX_WAIT = 0x100, MX_REMOTE = 0x200, MX_LOST = 0x400, MX_NOT_READY = 0x800 };

/* mlx5_device.c, mlx5_ioctl.c */
int mx_get_context(struct sim_ctx *, struct sim_io *);
int mx_query_device(struct sim_ctx *, bool ex, struct sim_io *);
int mx_query_port(struct sim_ctx *, struct sim_io *);
int mx_create_ah(struct sim_ctx *, struct sim_io *);
int mx_check_path(struct sim_ctx *, const uint8_t *dgid, bool global, uint8_t sgid_index, uint8_t port);
int mx_ioctl(struct sim_ctx *, struct ib_uverbs_ioctl_hdr *);
void *mx_map(struct sim_ctx *, void *addr, size_t len, int prot, int flags, off_t off);
int mx_slot_at(struct sim_device *from, const uint8_t gid[16], uint16_t lid, uint32_t qpn);
uint32_t mx_address_at(struct sim_device *from, const uint8_t gid[16], uint16_t lid, uint32_t qpn);
struct sim_device *mx_device_at(struct sim_device *from, const uint8_t gid[16], bool global, uint16_t lid, uint32_t qpn);

/* mlx5_create.c, mlx5_modify.c */
int mx_create_cq(struct sim_ctx *, bool ex, struct sim_io *);
int mx_resize_cq(struct sim_ctx *, struct sim_io *);
int mx_create_srq(struct sim_ctx *, struct sim_io *);
int mx_modify_srq(struct sim_ctx *, struct sim_io *);
int mx_query_srq(struct sim_ctx *, struct sim_io *);
int mx_create_qp(struct sim_ctx *, bool ex, struct sim_io *);
int mx_modify_qp(struct sim_ctx *, bool ex, struct sim_io *);
int mx_query_qp(struct sim_ctx *, struct sim_io *);

/* mlx5_clock.c */
uint64_t mx_tick(void);
void *mx_map_clock(void *addr, size_t len, int prot, int flags, unsigned command);

/* mlx5_cq.c */
int mx_modify_cq(struct sim_ctx *, struct sim_io *);
bool mx_cq_work(struct mx_cq *);
void mx_request_done(struct mx_qp *, const struct mx_wqe *, int syndrome);
void mx_receive_done(struct mx_qp *, const struct mx_recv *, struct mlx5_cqe64 *, int opcode, int syndrome);

/* mlx5_wqe.c */
void mx_load(struct mx_qp *, uint16_t at, struct mx_wqe *);
void mx_decode(struct mx_qp *, struct mx_wqe *);

/* mlx5_recv.c */
bool mx_take(struct mx_qp *, struct mx_recv *);
void mx_flush_receives(struct mx_qp *);

/* mlx5_send.c, mlx5_datagram.c, mlx5_atomic.c */
struct mx_qp *mx_connected(struct mx_qp *);
int mx_conclude(struct mx_qp *, struct mx_qp *to, const struct mx_wqe *, int status);
int mx_accept(struct sim_node *from, uint32_t qpn, uint16_t lid, struct mx_qp *to, struct mx_wqe *);
bool mx_would_work(struct mx_qp *, struct mx_wqe *);
int mx_execute(struct mx_qp *, struct mx_wqe *, struct mx_pending *);
int mx_send_datagram(struct mx_qp *, struct mx_wqe *, struct mx_pending *);
void mx_receive_datagram(struct sim_device *, const struct mx_datagram *);
int mx_atomic(struct mx_wqe *, struct sim_node *far, uint8_t *word);
unsigned mx_atomic_size(const struct mx_wqe *);

/* mlx5_remote.c */
int mx_send_message(struct mx_qp *, struct mx_qp *to, struct mx_wqe *, struct mx_pending *);
int mx_answer(struct mx_pending *, unsigned *rnr_timer);
bool mx_recall(struct mx_pending *);
void mx_recall_all(struct mx_qp *);
int mx_post_datagram(struct mx_qp *, struct sim_device *to, const struct mx_datagram *, struct mx_pending *);
void mx_arrive(struct sim_node *from, struct sim_message *);

/* mlx5_way.c */
int mx_carry(struct mx_qp *, struct mx_wqe *, struct mx_pending *);
void mx_send_behind(struct mx_qp *);

/* mlx5_window.c */
int mx_alloc_window(struct sim_ctx *, struct sim_io *);
int mx_umr(struct mx_qp *, const struct mx_wqe *);
uint8_t *mx_remote_memory(struct mx_qp *, uint32_t key, uint64_t addr, uint64_t len, uint32_t access);
bool mx_may_invalidate(struct mx_qp *, uint32_t key);
void mx_invalidate(struct mx_qp *, uint32_t key);

/* mlx5_qp.c */
struct mx_qp *mx_qp_of(struct sim_device *, uint32_t qpn);
struct sim_device *mx_device_of(struct sim_node *, uint32_t qpn);
struct sim_obj *mx_find_qp(struct sim_device *, uint32_t qpn);
void mx_fail(struct mx_qp *, uint32_t event);
void mx_fail_qp(struct sim_obj *);
bool mx_stream_in_error(const struct mx_qp *, uint16_t stream);
void mx_stream_reset(struct mx_qp *, uint16_t stream);
bool mx_qp_work(struct mx_qp *);

/* mlx5_order.c */
void mx_overtake(struct mx_qp *, int i);
bool mx_pauses(struct mx_qp *, const struct mx_wqe *, struct mx_pending *);
int mx_move(struct mx_qp *, struct mx_wqe *, struct mx_pending *, struct sim_node *far, uint8_t *at);

static inline uint32_t mx_qpn0(const struct sim_node *n) { return (uint32_t)n->slot << 16 | MX_QPN0; }
static inline int mx_slot_of(uint32_t qpn) { return qpn >> 16 & (SIM_NODES - 1); }
static inline bool mx_is_send(uint8_t op) { return op == MLX5_OPCODE_SEND || op == MLX5_OPCODE_SEND_IMM || op == MLX5_OPCODE_SEND_INVAL; }
static inline bool mx_is_write(uint8_t op) { return op == MLX5_OPCODE_RDMA_WRITE || op == MLX5_OPCODE_RDMA_WRITE_IMM; }
static inline bool mx_is_atomic(uint8_t op)
{
	return op == MLX5_OPCODE_ATOMIC_CS || op == MLX5_OPCODE_ATOMIC_FA || op == MLX5_OPCODE_ATOMIC_MASKED_CS || op == MLX5_OPCODE_ATOMIC_MASKED_FA;
}
static inline uint32_t mx_av_qpn(const struct mlx5_wqe_av *av) { return be32toh(av->dqp_dct) & 0xffffff; }
static inline uint32_t mx_load32(const uint32_t *p) { return be32toh(__atomic_load_n(p, __ATOMIC_ACQUIRE)); }

#endif
