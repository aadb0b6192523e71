//go:build cgo

package cgo

/*
#include "driver.h"
#include <string.h>

_Static_assert(sizeof(struct mlx5_wqe_av) == 48, "address vector");

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

// The address vector of mlx5, as it stands in work queue entries.
static int gv_mlx5_av(uintptr_t ah, void *out)
{
	struct gv_driver *d = gv_driver();
	struct mlx5dv_ah dv = {};
	struct mlx5dv_obj obj = { .ah = { .in = (struct ibv_ah *)ah, .out = &dv } };
	int err = d->mlx5_init_obj ? d->mlx5_init_obj(&obj, MLX5DV_OBJ_AH) : EOPNOTSUPP;

	if (!err)
		memcpy(out, dv.av, sizeof(*dv.av));
	return err;
}

static int gv_efa_query(uintptr_t ctx, struct efadv_device_attr *a)
{
	struct gv_driver *d = gv_driver();

	return d->efa_query_device ? d->efa_query_device((struct ibv_context *)ctx, a, sizeof(*a)) : EOPNOTSUPP;
}

static int gv_efa_query_ah(uintptr_t ah, struct efadv_ah_attr *a)
{
	struct gv_driver *d = gv_driver();

	return d->efa_query_ah ? d->efa_query_ah((struct ibv_ah *)ah, a, sizeof(*a)) : EOPNOTSUPP;
}
*/
import "C"

import "unsafe"

// DriverTable is the address of the table of provider calls (struct gv_driver of
// driver.h), where tests put their own.
func DriverTable() uintptr { return uintptr(unsafe.Pointer(C.gv_driver())) }

// Mlx5Supported reports whether the device belongs to mlx5.
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

// Mlx5AV is the address vector of an address handle, as it stands in work queue
// entries of mlx5, destination and key excepted.
func Mlx5AV(ah AH) (av [48]byte, err error) {
	r, err := C.gv_mlx5_av(C.uintptr_t(ah), unsafe.Pointer(&av))
	return av, status(r, err)
}

// EFAQuery is efadv_query_device.
func EFAQuery(ctx Context, out *EFAAttr) error {
	var a C.struct_efadv_device_attr
	r, err := C.gv_efa_query(C.uintptr_t(ctx), &a)
	toGo(&a, out)
	return status(r, err)
}

// EFAAHNumber is the number of an address handle of EFA, which completions of
// datagrams from there have in SLID.
func EFAAHNumber(ah AH) (uint16, error) {
	var a C.struct_efadv_ah_attr
	r, err := C.gv_efa_query_ah(C.uintptr_t(ah), &a)
	return uint16(a.ahn), status(r, err)
}
