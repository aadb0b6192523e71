//go:build simhca && linux && cgo

/*
 * Completion events and asynchronous events. The program's file descriptor is the
 * end of a pipe, so that poll(2), epoll and a blocking read work on it.
 */
#include "sim.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIPE_BYTES = 1 << 20 };

/* Beside the program's end there is one of our own that never blocks. */
void sim_pipe_open(struct sim_pipe *p)
{
	char path[64];
	int fds[2];

	if (pipe2(fds, O_CLOEXEC)) {
		perror("simhca: pipe");
		abort();
	}
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	p->reader = fds[0];
	p->writer = fds[1];
	p->peek = sim_real.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* The program closes its end itself. */
void sim_pipe_shut(struct sim_pipe *p)
{
	if (p->writer < 0)
		return;
	sim_real.close(p->writer);
	sim_real.close(p->peek);
	p->writer = -1;
}

static bool sent(struct sim_pipe *p, const void *event, size_t size)
{
	if (p->writer < 0)
		return false;
	if (write(p->writer, event, size) == (ssize_t)size)
		return true;
	sim_print("an event is lost: %s", strerror(errno));
	return false;
}

/* A completion queue's event, if it has a channel. */
void sim_completion_event(struct sim_obj *cq)
{
	struct ib_uverbs_comp_event_desc d = { .cq_handle = cq->user };

	if (cq->chan && sent(&cq->chan->pipe, &d, sizeof(d)))
		cq->events++;
}

void sim_device_event(struct sim_ctx *c, uint32_t type, uint64_t element)
{
	struct ib_uverbs_async_event_desc d = { .element = element, .event_type = type };

	sent(&c->async, &d, sizeof(d));
}

void sim_async_event(struct sim_obj *o, uint32_t type)
{
	struct ib_uverbs_async_event_desc d = { .element = o->user, .event_type = type };

	sim_trace(2, "event %s of object %u", ibv_event_type_str(type), o->handle);
	if (sent(&o->ctx->async, &d, sizeof(d)))
		o->asyncs++;
}

/* A context of a device that is removed: it is told so, and nothing more comes. */
void sim_last_event(struct sim_ctx *c)
{
	sim_device_event(c, IBV_EVENT_DEVICE_FATAL, 0);
	sim_pipe_shut(&c->async);
	sim_shut_channels(c);
}

/* Takes the events of an object that goes out of a pipe, and answers how many. */
uint32_t sim_unread_events(struct sim_pipe *p, size_t size, uint64_t element)
{
	static uint8_t all[PIPE_BYTES];
	ssize_t got = sim_real.read(p->peek, all, sizeof(all));
	uint32_t n = 0;

	for (ssize_t i = 0; i + (ssize_t)size <= got; i += size) {
		uint64_t e;

		memcpy(&e, all + i, sizeof(e));
		if (e == element)
			n++;
		else
			sent(p, all + i, size);
	}
	return n;
}
