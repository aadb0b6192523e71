//go:build simhca && linux && cgo

/* Faults by choice. */
#include "fault.h"
#include "sim.h"
#include <stdlib.h>

struct fault {
	struct sim_device *dev;
	uint32_t qpn, after;
	int status;         /* 0: the requests wait */
	uint64_t until;
	struct fault *next;
};

static struct fault *faults;

static struct sim_device *device_of(const char *name)
{
	for (int i = 0; i < sim_self->ndevices; i++)
		if (!strcmp(sim_self->devices[i].name, name) && !sim_self->devices[i].removed)
			return &sim_self->devices[i];
	return NULL;
}

static int add(const char *device, struct fault f)
{
	struct fault *new = malloc(sizeof(*new));
	int err = 0;

	*new = f;
	sim_lock();
	new->dev = device_of(device);
	if (!new->dev || !new->dev->model->find_qp(new->dev, f.qpn)) {
		free(new);
		err = ENODEV;
	} else {
		new->next = faults;
		faults = new;
	}
	sim_unlock();
	return err;
}

int simhca_fail(const char *device, uint32_t qpn, uint32_t after, int status)
{
	return status ? add(device, (struct fault){ .qpn = qpn, .after = after, .status = status }) : EINVAL;
}

int simhca_hold(const char *device, uint32_t qpn, uint64_t us)
{
	return add(device, (struct fault){ .qpn = qpn, .until = sim_now() + us * 1000 });
}

int simhca_break(const char *device, uint32_t qpn)
{
	struct sim_device *d;
	struct sim_obj *qp = NULL;

	sim_lock();
	d = device_of(device);
	if (d)
		qp = d->model->find_qp(d, qpn);
	if (qp)
		d->model->fail_qp(qp);
	sim_unlock();
	sim_rouse();
	return qp ? 0 : ENODEV;
}

/* As the kernel does it: each process that has the device open is told, and can do nothing more with it than to close it. */
int simhca_remove(const char *device)
{
	struct sim_device *d;

	sim_lock();
	d = device_of(device);
	if (d)
		d->removed = true;
	for (struct sim_ctx *c = sim_contexts; c; c = c->next)
		if (c->dev == d)
			sim_last_event(c);
	sim_unlock();
	return d ? 0 : ENODEV;
}

static struct fault **of(struct sim_obj *qp, uint32_t qpn, bool waits)
{
	struct fault **f = &faults;

	while (*f && ((*f)->dev != qp->ctx->dev || (*f)->qpn != qpn || ((*f)->status == 0) != waits))
		f = &(*f)->next;
	return f;
}

static void forget(struct fault **f)
{
	struct fault *old = *f;

	*f = old->next;
	free(old);
}

int sim_fault_request(struct sim_obj *qp, uint32_t qpn)
{
	struct fault **f = of(qp, qpn, false);
	int status;

	if (!*f || (*f)->after-- > 0)
		return 0;
	status = (*f)->status;
	forget(f);
	return status;
}

/* Tells whether a request of a queue pair will be made to fail. */
bool sim_fault_ahead(struct sim_obj *qp, uint32_t qpn) { return *of(qp, qpn, false); }

bool sim_fault_late(struct sim_obj *qp, uint32_t qpn)
{
	struct fault **f = of(qp, qpn, true);

	if (!*f)
		return false;
	if (sim_now() < (*f)->until)
		return true;
	forget(f);
	return false;
}

void sim_fault_end(struct sim_obj *qp, uint32_t qpn)
{
	struct fault **f = &faults;

	while (*f)
		if ((*f)->dev == qp->ctx->dev && (*f)->qpn == qpn)
			forget(f);
		else
			f = &(*f)->next;
}
