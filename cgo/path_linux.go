//go:build cgo

package cgo

/*
#include "driver.h"
#include <errno.h>

static int gv_mlx5_udp_sport(uintptr_t qp, uint16_t port)
{
	struct gv_driver *d = gv_driver();

	return d->mlx5_udp_sport ? d->mlx5_udp_sport((struct ibv_qp *)qp, port) : EOPNOTSUPP;
}

static int gv_mlx5_set_lag_port(uintptr_t qp, uint8_t port)
{
	struct gv_driver *d = gv_driver();

	return d->mlx5_set_lag_port ? d->mlx5_set_lag_port((struct ibv_qp *)qp, port) : EOPNOTSUPP;
}

static int gv_mlx5_lag_port(uintptr_t qp, uint8_t *port, uint8_t *active)
{
	struct gv_driver *d = gv_driver();

	return d->mlx5_lag_port ? d->mlx5_lag_port((struct ibv_qp *)qp, port, active) : EOPNOTSUPP;
}
*/
import "C"

// Mlx5SetUDPSourcePort is mlx5dv_modify_qp_udp_sport; like all of this file it is
// for queue pairs of mlx5 alone.
func Mlx5SetUDPSourcePort(qp QP, port uint16) error {
	r, err := C.gv_mlx5_udp_sport(C.uintptr_t(qp), C.uint16_t(port))
	return status(r, err)
}

// Mlx5SetLAGPort is mlx5dv_modify_qp_lag_port.
func Mlx5SetLAGPort(qp QP, port uint8) error {
	r, err := C.gv_mlx5_set_lag_port(C.uintptr_t(qp), C.uint8_t(port))
	return status(r, err)
}

// Mlx5LAGPort is mlx5dv_query_qp_lag_port: the port that was chosen, and the one
// that its packets leave by.
func Mlx5LAGPort(qp QP) (port, active uint8, err error) {
	var p, a C.uint8_t
	r, err := C.gv_mlx5_lag_port(C.uintptr_t(qp), &p, &a)
	return uint8(p), uint8(a), status(r, err)
}
