#ifndef SIMHCA_SIM_H
#define SIMHCA_SIM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/*
 * The frame: what both devices have in common. One lock guards everything.
 */
enum { SIM_DEVICES = 8, SIM_GIDS = 8, SIM_OBJECTS = 1 << 16, SIM_HANDLES = 0xeffe, SIM_NODES = 256 };

enum sim_kind { SIM_PD = 1, SIM_MR, SIM_MW, SIM_CQ, SIM_SRQ, SIM_QP, SIM_AH, SIM_PAGE };

struct sim_device;
struct sim_io;
struct sim_obj;
struct sim_ctx;
struct sim_node;
struct sim_message;

/* A model of a device: what differs between mlx5 and EFA. */
struct sim_model {
	const char *name;
	/* Takes an option of $SIMHCA; false: there is none of that name. */
	bool (*option)(struct sim_device *, const char *);
	void (*init)(struct sim_device *);
	/* A command of uverbs: an errno, or SIM_COMMON to have the frame do it. */
	int (*command)(struct sim_ctx *, uint32_t cmd, bool ex, struct sim_io *);
	/* Any other ioctl. */
	int (*ioctl)(struct sim_ctx *, struct ib_uverbs_ioctl_hdr *);
	void *(*map)(struct sim_ctx *, void *addr, size_t len, int prot, int flags, off_t off);
	/* Does what there is to do for an object; true if there was something. */
	bool (*work)(struct sim_obj *);
	uint64_t (*tick)(void); /* before each turn; may be missing */
	struct sim_obj *(*find_qp)(struct sim_device *, uint32_t qpn);
	/* A message from another process. */
	void (*arrive)(struct sim_node *from, struct sim_message *);
	/* A queue pair breaks by itself. */
	void (*fail_qp)(struct sim_obj *);
	/* Ends what an object has beside its memory, when it is destroyed. */
	void (*release)(struct sim_obj *);
};

enum { SIM_COMMON = -1 };

struct sim_gid {
	uint8_t raw[16];
	bool v2; /* RoCE v2 */
};

struct sim_device {
	const struct sim_model *model;
	struct sim_node *node;
	int number; /* among the process's devices */
	int id;     /* among those of the fabric */
	char name[16];
	bool ib, removed;
	uint32_t options; /* the model's */
	uint16_t part, lid;
	uint64_t guid; /* host byte order */
	uint32_t address; /* IPv4, host byte order; 0: it has none */
	int ngids;
	struct sim_gid gids[SIM_GIDS];
};

/*
 * A process: its devices, and what they have. In a fabric it is shared memory, at the same
 * address in all processes, which follow its pointers from one object to another.
 */
struct sim_node {
	int slot;
	int ndevices;
	struct sim_device devices[SIM_DEVICES];
	struct sim_obj *objects[SIM_OBJECTS];
	struct sim_outbox *outboxes[SIM_NODES];
};

extern struct sim_node *sim_self;
extern int sim_tracing;
extern uint32_t sim_address; /* IPv4, of the first device; host byte order */

void sim_lock(void);
bool sim_trylock(void);
void sim_unlock(void);

#define sim_trace(level, ...) do { if (sim_tracing >= (level)) sim_print(__VA_ARGS__); } while (0)
void sim_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Answers an errno and says why. */
#define sim_refuse(err, ...) (sim_tracing >= 1 ? sim_print("refused: " __VA_ARGS__), (err) : (err))

uint64_t sim_now(void); /* ns */

/* ---- objects (objects.c) ---- */

/* A queue of events that the program reads from a file descriptor. */
struct sim_pipe { int reader, writer, peek; };

struct sim_ctx {
	int fd;
	struct sim_device *dev;
	struct sim_pipe async;
	struct sim_ctx *next;
};

struct sim_chan {
	struct sim_pipe pipe;
	struct sim_ctx *ctx;
	struct sim_chan *next;
};

/* Every object begins with this. */
struct sim_obj {
	enum sim_kind kind;
	uint32_t handle;
	struct sim_ctx *ctx;
	struct sim_obj *pd;
	uint64_t user;      /* what the program calls it */
	int refs;           /* by other objects */
	uint32_t size;
	struct sim_chan *chan;
	uint32_t events, asyncs; /* sent so far */
	struct sim_obj *next, **link; /* among those with work */
};

struct sim_mr {
	struct sim_obj o;
	uint64_t start, length, va;
	uint32_t lkey, rkey, access;
};

extern struct sim_obj *sim_working;
extern struct sim_ctx *sim_contexts;

void *sim_add(struct sim_ctx *, enum sim_kind, size_t size);
void *sim_get(struct sim_ctx *, uint32_t handle, enum sim_kind);
void *sim_any(struct sim_node *, uint32_t handle, enum sim_kind); /* of any context */
uint32_t sim_key(const struct sim_obj *, uint8_t variant);
void sim_hold(struct sim_obj *pd, struct sim_obj *child);
int sim_destroy(struct sim_ctx *, uint32_t handle, enum sim_kind, struct sim_io *);
void sim_watch(struct sim_obj *); /* has the thread look at it */
int sim_open(int device);
bool sim_close(int fd);
void sim_objects_forget(void);
struct sim_ctx *sim_ctx_of(int fd);
struct sim_chan *sim_chan_of(int fd);
void sim_shut_channels(struct sim_ctx *);
bool sim_shut(int fd);
int sim_create_channel(struct sim_ctx *, struct sim_io *);

/* ---- events (events.c) ---- */

void sim_pipe_open(struct sim_pipe *);
void sim_pipe_shut(struct sim_pipe *);
void sim_completion_event(struct sim_obj *cq);
void sim_async_event(struct sim_obj *, uint32_t type);
void sim_device_event(struct sim_ctx *, uint32_t type, uint64_t element);
void sim_last_event(struct sim_ctx *);
uint32_t sim_unread_events(struct sim_pipe *, size_t size, uint64_t element);

/* ---- commands (uverbs.c) ---- */

struct sim_io {
	const uint8_t *in, *driver_in;
	uint8_t *out, *driver_out;
	size_t nin, ndriver_in, nout, ndriver_out;
};

#define SIM_IN(type, name) struct type name = {}; memcpy(&name, io->in, io->nin < sizeof(name) ? io->nin : sizeof(name))
#define SIM_DRIVER_IN(type, name) struct type name = {}; \
	if (io->driver_in) memcpy(&name, io->driver_in, io->ndriver_in < sizeof(name) ? io->ndriver_in : sizeof(name))
#define SIM_OUT(v) do { if (io->out) memcpy(io->out, &(v), io->nout < sizeof(v) ? io->nout : sizeof(v)); } while (0)
#define SIM_DRIVER_OUT(v) do { if (io->driver_out) \
	memcpy(io->driver_out, &(v), io->ndriver_out < sizeof(v) ? io->ndriver_out : sizeof(v)); } while (0)

int sim_ioctl(struct sim_ctx *, struct ib_uverbs_ioctl_hdr *);
struct ib_uverbs_attr *sim_attr(struct ib_uverbs_ioctl_hdr *, uint16_t id);
const uint8_t *sim_attr_in(struct ib_uverbs_attr *, size_t *len);
void sim_attr_out(struct ib_uverbs_attr *, const void *, size_t len);

/* ---- memory (memory.c) ---- */

struct sim_piece { uint8_t *at; uint64_t len; };

int sim_reg_mr(struct sim_ctx *, struct sim_io *, uint32_t may);
int sim_rereg_mr(struct sim_ctx *, struct sim_io *, uint32_t may);
uint8_t *sim_memory(struct sim_obj *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len, uint32_t access);
void sim_copy(struct sim_piece *to, int nto, const struct sim_piece *from, int nfrom);

/* ---- the fabric (fabric.c) ---- */

enum sim_entry { SIM_IN, SIM_BUSY, SIM_GONE };

bool sim_fabric_join(const char *name);
void sim_fabric_forget(void);
bool sim_in_fabric(void);
bool sim_fabric_file(int fd);
bool sim_alive(int slot);
int sim_processes(void);
struct sim_node *sim_node_of(int slot);
enum sim_entry sim_enter(int slot);
void sim_leave(void);
void sim_change(void);
bool sim_try_change(void);
void sim_changed(void);
void *sim_new(size_t);
void sim_delete(void *, size_t);
void sim_listen(bool on);
void sim_nap(uint64_t ns);
void sim_doze(uint64_t ns, bool (*polls)(void));
void sim_attend(void);
void sim_rouse(void);
void sim_wake(int slot);

/* The memory of its processes (remote.c). */
int sim_transfer(struct sim_node *far, bool store, struct sim_piece *here, int nhere, struct sim_piece *there, int nthere);
bool sim_hold_word(struct sim_node *, const uint8_t *word);
void sim_release_word(struct sim_node *, const uint8_t *word);

/* Messages between them (messages.c). */
enum { SIM_FREE, SIM_SENT, SIM_TAKEN, SIM_ANSWERED, SIM_RECALLED };

struct sim_message {
	uint32_t state;
	bool answered; /* the sender waits for an answer */
	uint32_t device; /* among the receiver's */
	uint64_t serial;
	uint8_t body[4328]; /* the model's */
};

struct sim_message *sim_compose(int slot);
uint64_t sim_post(int slot, struct sim_message *);
uint32_t sim_state_of(const struct sim_message *, uint64_t serial);
void sim_forget_message(struct sim_message *);
bool sim_recall(struct sim_message *, uint64_t serial);
bool sim_receive(void);

/* ---- impairments (impair.c) ---- */

enum { SIM_RULES = 64 };

struct sim_rule {
	uint32_t from, to; /* addresses; 0: all */
	uint64_t delay;    /* ns */
	double loss;       /* 0 to 1 */
	double rate;       /* bits a second; 0: as many as there are */
};

extern bool sim_impaired; /* there is a rule */

void sim_impair_by(const char *file);
void sim_impair_look(void);
const struct sim_rule *sim_rule_of(uint32_t from, uint32_t to);
bool sim_lost(const struct sim_rule *);
uint64_t sim_arrival(const struct sim_rule *, uint64_t now, uint64_t bytes);

/* ---- states of queue pairs (qpstate.c) ---- */

/*
 * Tells whether the specification, as the kernel's table has it, lets a queue
 * pair change so with that mask of attributes.
 */
bool sim_qp_may(enum ibv_qp_type, int from, int to, uint32_t mask);

/* ---- the thread (engine.c) ---- */

extern bool sim_waiting; /* a request that is not over */
extern bool sim_fetched; /* there has been a request */

void sim_engine_start(void);
bool sim_lend(void);
void sim_asked(void);
void sim_engine_forget(void); /* in the child of a fork */

/* ---- threads of the program that poll (poll.c) ---- */

void sim_watch_polls(struct sim_obj *cq);
void sim_unwatch_polls(struct sim_obj *cq);
void sim_watch_posts(struct sim_obj *qp);
bool sim_posted(void); /* by calls that are watched */

/* ---- interposition, configuration ---- */

struct sim_real {
	int (*open)(const char *, int, ...);
	int (*stat)(const char *, void *);
	int (*access)(const char *, int);
	int (*ioctl)(int, unsigned long, ...);
	int (*close)(int);
	ssize_t (*read)(int, void *, size_t);
	int (*socket)(int, int, int);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
};

extern struct sim_real sim_real;
void sim_resolve(void);
bool sim_configure(void);
bool sim_sysfs(void);
bool sim_trusted(const char *folder);
void sim_no_sysfs(void);

extern const struct sim_model sim_mlx5, sim_efa;

/* ---- faults by choice (fault.c) ---- */

/* The status (enum ibv_wc_status) that a request ends with by choice, or 0. */
int sim_fault_request(struct sim_obj *qp, uint32_t qpn);
bool sim_fault_ahead(struct sim_obj *qp, uint32_t qpn);
/* Tells whether the requests of a queue pair are held back. */
bool sim_fault_late(struct sim_obj *qp, uint32_t qpn);
/* Its number is another's now. */
void sim_fault_end(struct sim_obj *qp, uint32_t qpn);

#endif
