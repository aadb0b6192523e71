//go:build cgo

package cgo

/*
#include "driver.h"

static int gv_mlx5_supported(uintptr_t ctx)
{
	struct gv_driver *d = gv_driver();

	return d->mlx5_is_supported && d->mlx5_is_supported(((struct ibv_context *)ctx)->device);
}

static int gv_mlx5_query(uintptr_t ctx, struct mlx5dv_context *a)
{
	struct gv_driver *d = gv_driver();

	a->comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH;
	return d->mlx5_query_device ? d->mlx5_query_device((struct ibv_context *)ctx, a) : EOPNOTSUPP;
}

static int gv_mlx5_stream_reset(uintptr_t qp, uint16_t stream)
{
	struct gv_driver *d = gv_driver();

	return d->mlx5_stream_reset ? d->mlx5_stream_reset((struct ibv_qp *)qp, stream) : EOPNOTSUPP;
}

static int gv_efa_query(uintptr_t ctx, struct efadv_device_attr *a)
{
	struct gv_driver *d = gv_driver();

	return d->efa_query_device ? d->efa_query_device((struct ibv_context *)ctx, a, sizeof(*a)) : EOPNOTSUPP;
}
*/
import "C"

import "unsafe"

// Mlx5Supported tells whether the device belongs to mlx5.
func Mlx5Supported(ctx Context) bool { return C.gv_mlx5_supported(C.uintptr_t(ctx)) != 0 }

// Mlx5Query is mlx5dv_query_device.
func Mlx5Query(ctx Context, out *Mlx5Attr) error {
	var a C.struct_mlx5dv_context
	r, err := C.gv_mlx5_query(C.uintptr_t(ctx), &a)
	if err := status(r, err); err != nil {
		return err
	}
	*out = Mlx5Attr{Flags: uint64(a.flags), DCODPCaps: uint32(a.dc_odp_caps), LogStreams: uint8(a.dci_streams_caps.max_log_num_concurent),
		LogErrored: uint8(a.dci_streams_caps.max_log_num_errored), MaxWRMemcpy: uint64(a.max_wr_memcpy_length)}
	return nil
}

// Mlx5StreamReset makes a stream of a DCI usable again after an error.
func Mlx5StreamReset(qp QP, stream uint16) error {
	r, err := C.gv_mlx5_stream_reset(C.uintptr_t(qp), C.uint16_t(stream))
	return status(r, err)
}

// EFAQuery is efadv_query_device.
func EFAQuery(ctx Context, out *EFAAttr) error {
	r, err := C.gv_efa_query(C.uintptr_t(ctx), (*C.struct_efadv_device_attr)(unsafe.Pointer(out)))
	return status(r, err)
}
