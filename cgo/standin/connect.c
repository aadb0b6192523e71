//go:build linux && cgo

/*
 * The C loop that connection set-up is measured against: librdmacm as its own
 * examples use it, with blocking events.
 */
#include "standin.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

struct connector {
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static int await(struct connector *c, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *ev;
	int ok;

	if (rdma_get_cm_event(c->channel, &ev))
		return -1;
	ok = ev->event == want;
	rdma_ack_cm_event(ev);
	return ok ? 0 : -1;
}

static int shared(struct connector *c, struct ibv_context *ctx)
{
	if (!c->pd)
		c->pd = ibv_alloc_pd(ctx);
	if (!c->cq)
		c->cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	return c->pd && c->cq ? 0 : -1;
}

static int make_qp(struct connector *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (shared(c, id->verbs))
		return -1;
	attr.send_cq = attr.recv_cq = c->cq;
	return rdma_create_qp(id, c->pd, &attr);
}

/* One connection; answers how long it took until it was there. */
static int64_t connect_once(struct connector *c, struct sockaddr *to)
{
	struct rdma_conn_param param = { .responder_resources = 16, .initiator_depth = 16, .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;
	int64_t start = standin_now(), took = -1;

	if (rdma_create_id(c->channel, &id, NULL, RDMA_PS_TCP))
		return -1;
	if (rdma_resolve_addr(id, NULL, to, 2000) || await(c, RDMA_CM_EVENT_ADDR_RESOLVED))
		goto out;
	if (rdma_resolve_route(id, 2000) || await(c, RDMA_CM_EVENT_ROUTE_RESOLVED) || make_qp(c, id))
		goto out;
	if (rdma_connect(id, &param) || await(c, RDMA_CM_EVENT_ESTABLISHED))
		goto out;
	took = standin_now() - start;
	if (rdma_disconnect(id) || await(c, RDMA_CM_EVENT_DISCONNECTED))
		took = -1;
out:
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return took;
}

int standin_connect_loop(const char *address, uint16_t port, int64_t pause, int64_t *lat, int n)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct timespec before = { .tv_sec = pause / 1000000000, .tv_nsec = pause % 1000000000 };
	struct connector c = {};
	int err = -1;

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || !(c.channel = rdma_create_event_channel()))
		return -1;
	for (int i = 0; i < n; i++) {
		if (pause)
			nanosleep(&before, NULL);
		lat[i] = connect_once(&c, (struct sockaddr *)&to);
		if (lat[i] < 0)
			goto out;
	}
	err = 0;
out:
	if (c.cq)
		ibv_destroy_cq(c.cq);
	if (c.pd)
		ibv_dealloc_pd(c.pd);
	rdma_destroy_event_channel(c.channel);
	return err;
}

/* Accepts connections until there is an error. */
int standin_connect_server(const char *address, uint16_t port)
{
	struct rdma_conn_param param = { .responder_resources = 16, .initiator_depth = 16, .rnr_retry_count = 7 };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct connector c = {};
	struct rdma_cm_id *listener;
	struct rdma_cm_event *ev;

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 || !(c.channel = rdma_create_event_channel()))
		return -1;
	if (rdma_create_id(c.channel, &listener, NULL, RDMA_PS_TCP) || rdma_bind_addr(listener, (struct sockaddr *)&at) ||
	    rdma_listen(listener, 64))
		return -1;
	while (!rdma_get_cm_event(c.channel, &ev)) {
		struct rdma_cm_id *id = ev->id;
		enum rdma_cm_event_type type = ev->event;

		rdma_ack_cm_event(ev);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST && (make_qp(&c, id) || rdma_accept(id, &param)))
			return -1;
		if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(id);
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
		}
	}
	return -1;
}
