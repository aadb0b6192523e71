//go:build simhca && linux && cgo

/* Contexts, channels, and the table of objects. */
#include "sim.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct sim_chan *channels;
static uint32_t last;

static struct sim_node alone;
struct sim_node *sim_self = &alone;
struct sim_obj *sim_working;
struct sim_ctx *sim_contexts;

/* Handles come around late, so that one that is out of date is noticed. */
void *sim_add(struct sim_ctx *c, enum sim_kind kind, size_t size)
{
	for (uint32_t i = 0; i < SIM_HANDLES; i++) {
		last = last % SIM_HANDLES + 1;
		if (!sim_self->objects[last]) {
			struct sim_obj *o = sim_new(size);

			if (!o)
				return NULL;
			o->kind = kind;
			o->handle = last;
			o->size = size;
			o->ctx = c;
			return sim_self->objects[last] = o;
		}
	}
	return NULL;
}

void *sim_any(struct sim_node *n, uint32_t handle, enum sim_kind kind)
{
	struct sim_obj *o = handle < SIM_OBJECTS ? n->objects[handle] : NULL;

	return o && o->kind == kind ? o : NULL;
}

void *sim_get(struct sim_ctx *c, uint32_t handle, enum sim_kind kind)
{
	struct sim_obj *o = sim_any(sim_self, handle, kind);

	return o && o->ctx == c ? o : NULL;
}

/* The key of a region or a window: no other object of the fabric has it. */
uint32_t sim_key(const struct sim_obj *o, uint8_t variant) { return (uint32_t)o->ctx->dev->node->slot << 24 | o->handle << 8 | variant; }

void sim_hold(struct sim_obj *pd, struct sim_obj *child)
{
	child->pd = pd;
	pd->refs++;
}

void sim_watch(struct sim_obj *o)
{
	o->next = sim_working;
	if (o->next)
		o->next->link = &o->next;
	o->link = &sim_working;
	sim_working = o;
}

static void drop(struct sim_obj *o)
{
	if (o->kind == SIM_CQ)
		sim_unwatch_polls(o);
	o->ctx->dev->model->release(o);
	if (o->link) {
		*o->link = o->next;
		if (o->next)
			o->next->link = o->link;
	}
	sim_self->objects[o->handle] = NULL;
	sim_delete(o, o->size);
}

/* Destroys an object, and answers how many events of it the program has read. */
int sim_destroy(struct sim_ctx *c, uint32_t handle, enum sim_kind kind, struct sim_io *io)
{
	struct sim_obj *o = sim_get(c, handle, kind);
	uint32_t read[2] = {};

	if (!o)
		return sim_refuse(EINVAL, "destroy: no object %u of kind %d", handle, kind);
	if (o->refs)
		return sim_refuse(EBUSY, "destroy: %d objects use object %u", o->refs, handle);
	read[0] = o->asyncs - (o->asyncs ? sim_unread_events(&c->async, sizeof(struct ib_uverbs_async_event_desc), o->user) : 0);
	if (kind == SIM_CQ) {
		read[1] = read[0];
		read[0] = o->events;
		if (o->chan && o->events)
			read[0] -= sim_unread_events(&o->chan->pipe, sizeof(struct ib_uverbs_comp_event_desc), o->user);
	}
	if (o->pd)
		o->pd->refs--;
	if (kind == SIM_CQ || kind == SIM_QP || kind == SIM_SRQ)
		SIM_OUT(read);
	drop(o);
	return 0;
}

struct sim_ctx *sim_ctx_of(int fd)
{
	struct sim_ctx *c = sim_contexts;

	while (c && c->fd != fd)
		c = c->next;
	return c;
}

struct sim_chan *sim_chan_of(int fd)
{
	struct sim_chan *h = channels;

	while (h && h->pipe.reader != fd)
		h = h->next;
	return h;
}

int sim_open(int device)
{
	int fd;
	struct sim_ctx *c;

	if (sim_self->devices[device].removed) {
		errno = ENXIO;
		return -1;
	}
	fd = sim_real.open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return fd;
	c = sim_new(sizeof(*c));
	if (!c) {
		sim_real.close(fd);
		errno = ENOMEM;
		return -1;
	}
	c->fd = fd;
	c->dev = &sim_self->devices[device];
	sim_pipe_open(&c->async);
	c->next = sim_contexts;
	sim_contexts = c;
	sim_engine_start();
	return fd;
}

int sim_create_channel(struct sim_ctx *c, struct sim_io *io)
{
	struct sim_chan *h = calloc(1, sizeof(*h));
	struct ib_uverbs_create_comp_channel_resp r;

	sim_pipe_open(&h->pipe);
	h->ctx = c;
	h->next = channels;
	channels = h;
	r.fd = h->pipe.reader;
	SIM_OUT(r);
	return 0;
}

static void close_context(struct sim_ctx *c)
{
	/* As the kernel cleans up: queue pairs before what they stand on. */
	static const enum sim_kind order[] = { SIM_QP, SIM_SRQ, SIM_CQ, SIM_AH, SIM_MW, SIM_MR, SIM_PAGE, SIM_PD };

	sim_change();
	for (size_t k = 0; k < sizeof(order) / sizeof(*order); k++)
		for (int i = 1; i < SIM_OBJECTS; i++)
			if (sim_self->objects[i] && sim_self->objects[i]->ctx == c && sim_self->objects[i]->kind == order[k])
				drop(sim_self->objects[i]);
	sim_pipe_shut(&c->async);
	sim_delete(c, sizeof(*c));
	sim_changed();
}

static void close_channel(struct sim_chan *h)
{
	for (int i = 1; i < SIM_OBJECTS; i++)
		if (sim_self->objects[i] && sim_self->objects[i]->chan == h)
			sim_self->objects[i]->chan = NULL;
	sim_pipe_shut(&h->pipe);
	free(h);
}

/* No more events come by a context's channels. */
void sim_shut_channels(struct sim_ctx *c)
{
	for (struct sim_chan *h = channels; h; h = h->next)
		if (h->ctx == c)
			sim_pipe_shut(&h->pipe);
}

/* Tells whether a descriptor brings events, and no more of them. */
bool sim_shut(int fd)
{
	struct sim_chan *h = sim_chan_of(fd);

	for (struct sim_ctx *c = sim_contexts; c; c = c->next)
		if (c->async.reader == fd)
			return c->async.writer < 0;
	return h && h->pipe.writer < 0;
}

/*
 * In the child of a fork: the parent's devices stay with the parent. What the
 * child has inherited it may close; it opens devices of its own.
 */
void sim_objects_forget(void)
{
	sim_working = NULL;
	sim_contexts = NULL;
	channels = NULL;
	memset(sim_self->objects, 0, sizeof(sim_self->objects));
}

/* Tells whether the descriptor that is being closed was ours. */
bool sim_close(int fd)
{
	for (struct sim_ctx **p = &sim_contexts; *p; p = &(*p)->next) {
		if ((*p)->fd == fd) {
			struct sim_ctx *c = *p;

			*p = c->next;
			close_context(c);
			return true;
		}
	}
	for (struct sim_chan **p = &channels; *p; p = &(*p)->next) {
		if ((*p)->pipe.reader == fd) {
			struct sim_chan *h = *p;

			*p = h->next;
			close_channel(h);
			return true;
		}
	}
	return false;
}
