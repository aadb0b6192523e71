/* The calls that Go makes into librdmacm. */
#ifndef GOVERBS_CM_H
#define GOVERBS_CM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <rdma/rdma_cma.h>

/* An event with everything that it points at; see struct CMEvent in Go. */
struct gv_cm_event {
	uint64_t id;      /* of a new request: the new id */
	uint64_t token;   /* of the id, or of the listener of a new request */
	uint64_t group;   /* token of a multicast join */
	uint32_t event;
	int32_t status;
	uint32_t qp_num;
	uint32_t qkey;
	struct ibv_ah_attr ah;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t private_len;
	uint8_t private_data[255];
};

/*
 * Takes one event, copies it and acknowledges it at once: rdma_destroy_id waits
 * for acknowledgements, and so never for anything but a call of this function.
 * The token is read before that, as after it the id may be gone.
 */
static inline int gv_cm_take(uintptr_t channel, struct gv_cm_event *out)
{
	struct rdma_cm_event *ev;
	const void *data = NULL;
	int ud;

	if (rdma_get_cm_event((struct rdma_event_channel *)channel, &ev))
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	memset(out, 0, sizeof(*out));
	out->id = (uintptr_t)ev->id;
	out->token = (uintptr_t)(ev->listen_id ? ev->listen_id->context : ev->id->context);
	out->event = ev->event;
	out->status = ev->status;
	ud = ev->id->qp_type == IBV_QPT_UD;
	if (ud) {
		out->qp_num = ev->param.ud.qp_num;
		out->qkey = ev->param.ud.qkey;
		out->ah = ev->param.ud.ah_attr;
		out->private_len = ev->param.ud.private_data_len;
		data = ev->param.ud.private_data;
	} else {
		out->qp_num = ev->param.conn.qp_num;
		out->responder_resources = ev->param.conn.responder_resources;
		out->initiator_depth = ev->param.conn.initiator_depth;
		out->retry_count = ev->param.conn.retry_count;
		out->rnr_retry_count = ev->param.conn.rnr_retry_count;
		out->private_len = ev->param.conn.private_data_len;
		data = ev->param.conn.private_data;
	}
	if (ev->event == RDMA_CM_EVENT_MULTICAST_JOIN || ev->event == RDMA_CM_EVENT_MULTICAST_ERROR) {
		out->group = (uintptr_t)data;
		out->private_len = 0;
	} else if (!data) {
		out->private_len = 0;
	} else {
		memcpy(out->private_data, data, out->private_len);
	}
	rdma_ack_cm_event(ev);
	return 1;
}

static inline int gv_cm_create_id(uintptr_t channel, uintptr_t token, int ps, uintptr_t *out)
{
	struct rdma_cm_id *id = NULL;
	int r = rdma_create_id((struct rdma_event_channel *)channel, &id, (void *)token, ps);

	*out = (uintptr_t)id;
	return r;
}

static inline void gv_cm_set_token(uintptr_t id, uintptr_t token)
{
	((struct rdma_cm_id *)id)->context = (void *)token;
}

static inline void gv_cm_param(struct rdma_conn_param *p, uint32_t qp_num, const uint8_t *depths,
			       const void *data, uint8_t len)
{
	memset(p, 0, sizeof(*p));
	p->qp_num = qp_num;
	p->responder_resources = depths[0];
	p->initiator_depth = depths[1];
	p->retry_count = depths[2];
	p->rnr_retry_count = depths[3];
	p->private_data = data;
	p->private_data_len = len;
}

static inline int gv_cm_connect(uintptr_t id, uint32_t qp_num, const uint8_t *depths, const void *data, uint8_t len)
{
	struct rdma_conn_param p;

	gv_cm_param(&p, qp_num, depths, data, len);
	return rdma_connect((struct rdma_cm_id *)id, &p);
}

static inline int gv_cm_accept(uintptr_t id, uint32_t qp_num, const uint8_t *depths, const void *data, uint8_t len)
{
	struct rdma_conn_param p;

	gv_cm_param(&p, qp_num, depths, data, len);
	return rdma_accept((struct rdma_cm_id *)id, &p);
}

/*
 * The attributes for the next state. Bits above IBV_QP_DEST_QPN are the
 * kernel's own (RoCE addresses) and no attributes of ibv_modify_qp.
 */
static inline int gv_cm_init_qp_attr(uintptr_t id, struct ibv_qp_attr *attr, uint32_t state, uint32_t *mask)
{
	int m = 0, r;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	r = rdma_init_qp_attr((struct rdma_cm_id *)id, attr, &m);
	*mask = (uint32_t)m & ((uint32_t)IBV_QP_DEST_QPN * 2 - 1);
	return r;
}

/* Brings a fresh queue pair to INIT; what its peer may do is the program's. */
static inline int gv_cm_init(uintptr_t id, uintptr_t qp, uint32_t access, struct ibv_qp_attr *attr, uint32_t *mask)
{
	int r = gv_cm_init_qp_attr(id, attr, IBV_QPS_INIT, mask);

	attr->qp_access_flags = access;
	return r ? r : ibv_modify_qp((struct ibv_qp *)qp, attr, *mask);
}

/* Where gv_cm_connected got to, for the error. */
enum { GV_CM_ATTR_RTR = 1, GV_CM_RTR, GV_CM_ATTR_RTS, GV_CM_RTS, GV_CM_ESTABLISH };

/*
 * Brings a queue pair from INIT to RTS and, on the active side, tells the peer,
 * in one call. Negative depths mean the connection manager's. The kernel leaves
 * the RNR timer 0, which is the longest of all.
 */
static inline int gv_cm_connected(uintptr_t id, uintptr_t qp, int responder, int initiator, int establish,
				  struct ibv_qp_attr *attr, uint32_t *mask, int *stage)
{
	int r;

	*stage = GV_CM_ATTR_RTR;
	r = gv_cm_init_qp_attr(id, attr, IBV_QPS_RTR, mask);
	if (r)
		return r;
	attr->min_rnr_timer = 12;
	if (responder >= 0)
		attr->max_dest_rd_atomic = responder;
	*stage = GV_CM_RTR;
	r = ibv_modify_qp((struct ibv_qp *)qp, attr, *mask);
	if (r)
		return r;
	*stage = GV_CM_ATTR_RTS;
	r = gv_cm_init_qp_attr(id, attr, IBV_QPS_RTS, mask);
	if (r)
		return r;
	if (initiator >= 0)
		attr->max_rd_atomic = initiator;
	*stage = GV_CM_RTS;
	r = ibv_modify_qp((struct ibv_qp *)qp, attr, *mask);
	if (r || !establish)
		return r;
	*stage = GV_CM_ESTABLISH;
	return rdma_establish((struct rdma_cm_id *)id);
}

static inline int gv_cm_join(uintptr_t id, struct sockaddr *group, uintptr_t token)
{
	return rdma_join_multicast((struct rdma_cm_id *)id, group, (void *)token);
}

#endif
