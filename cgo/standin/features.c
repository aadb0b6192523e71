//go:build linux && cgo

/*
 * The stand-in's features that rxe lacks. Each refuses what rdma-core or the
 * kernel refuses, named at the rule.
 */
#include "queues.h"
#include <errno.h>

#define note recorder_note
#define refuse recorder_refused

static uint8_t lag_port;

/* _mlx5dv_modify_qp_udp_sport in providers/mlx5/mlx5.c: RC and UC in RTS alone. */
static int udp_sport(struct ibv_qp *qp, uint16_t port)
{
	note("mlx5dv_modify_qp_udp_sport port=%u\n", port);
	if ((qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) || qp->state != IBV_QPS_RTS)
		return EOPNOTSUPP;
	return refuse("mlx5dv_modify_qp_udp_sport");
}

/* modify_qp_lag_port there: in RTS alone. */
static int set_lag_port(struct ibv_qp *qp, uint8_t port)
{
	note("mlx5dv_modify_qp_lag_port port=%u\n", port);
	if (qp->qp_type != IBV_QPT_RAW_PACKET && qp->state != IBV_QPS_RTS)
		return EOPNOTSUPP;
	if (refuse("mlx5dv_modify_qp_lag_port"))
		return errno;
	lag_port = port;
	return 0;
}

/* The first port is down: the second one has its packets. */
static int query_lag_port(struct ibv_qp *qp, uint8_t *port, uint8_t *active)
{
	(void)qp;
	note("mlx5dv_query_qp_lag_port\n");
	if (refuse("mlx5dv_query_qp_lag_port"))
		return errno;
	*port = lag_port;
	*active = 2;
	return 0;
}

/*
 * One queue pair at a time. The options that are set are what the peer offers;
 * with the next change of state the device takes those of them that it has
 * (mlx5_query_ece and mlx5_modify_qp in providers/mlx5/verbs.c).
 */
static uint32_t ece_has, ece_set, ece_taken;

static int query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	note("ibv_query_ece\n");
	if (refuse("ibv_query_ece"))
		return errno;
	*ece = (struct ibv_ece){ .vendor_id = 0x15b3, .options = ece_taken };
	return 0;
}

/* ibv_set_ece in libibverbs/verbs.c, mlx5_set_ece. */
static int set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	note("ibv_set_ece vendor=%#x options=%#x\n", ece->vendor_id, ece->options);
	if (!ece->vendor_id)
		return EOPNOTSUPP;
	if (ece->comp_mask || ece->vendor_id != 0x15b3)
		return EINVAL;
	if (refuse("ibv_set_ece"))
		return errno;
	ece_set = ece->options;
	ece_taken = 0;
	return 0;
}

void standin_ece_modified(void)
{
	if (ece_set)
		ece_taken = ece_set & ece_has;
	ece_set = 0;
}

void standin_features(struct gv_driver *d)
{
	d->mlx5_udp_sport = udp_sport;
	d->mlx5_set_lag_port = set_lag_port;
	d->mlx5_lag_port = query_lag_port;
	lag_port = 1;
	d->query_ece = query_ece;
	d->set_ece = set_ece;
	ece_has = ece_taken = 0x30000006;
	ece_set = 0;
}
