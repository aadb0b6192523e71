package nldev

import "errors"

// ErrNone: the kernel has no RDMA subsystem loaded.
var ErrNone = errors.New("the kernel has no RDMA subsystem (ib_core is not loaded)")

// Device is an RDMA device as the kernel names it.
type Device struct {
	Index    uint32
	Name     string
	Ports    int
	Firmware string
	NodeGUID uint64 // host byte order
	Protocol string // "ib", "roce", "iw", "opa", "usnic"
}

// Port is a port of a device, with the netdev on which it lies: none on
// InfiniBand, and none if that is in another network namespace.
type Port struct {
	Num         int
	State       int // as verbs.PortState
	NetdevIndex int // 0: none
	Netdev      string
}

// CharDev is the device file through which programs use a device.
type CharDev struct {
	Name   string // below /dev/infiniband
	Number uint64 // as the kernel encodes dev_t for programs
	Driver string // such as "mlx5"; empty if it is unknown
}

// Resource is an RDMA object in use, as "rdma resource show" lists it.
type Resource struct {
	Device string
	Kind   string // qp, cm_id, cq, mr, pd, ctx, srq
	Number uint32 // the kernel's, of this kind on this device; of a queue pair its QPN
	PID    int    // of the thread that made it; 0 when that has ended, and for the kernel's own
	Kernel string // the part of the kernel that it belongs to; empty for a program's
	Type   string // of a queue pair: RC, UD and so on
	State  string // of a queue pair
	Size   uint64 // bytes of a memory region, entries of a completion queue
}
