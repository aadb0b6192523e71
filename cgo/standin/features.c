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

void standin_features(struct gv_driver *d)
{
	d->mlx5_udp_sport = udp_sport;
	d->mlx5_set_lag_port = set_lag_port;
	d->mlx5_lag_port = query_lag_port;
	lag_port = 1;
}
