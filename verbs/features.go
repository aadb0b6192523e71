package verbs

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// Features are what a device can do beyond what every device can.
type Features struct {
	DeviceAttr
	OnDemand      bool   // memory that is not pinned: experimental.OnDemand
	OnDemandRC    uint32 // enum ibv_odp_transport_cap_bits
	OnDemandUD    uint32
	TimestampMask uint64 // bits of a completion's timestamp; 0: none
	ClockKHz      uint64 // rate of the device's clock
	MinRate       uint32 // kbit/s that experimental.SetRate takes; 0: none
	MaxRate       uint32
	MaxModerate   int           // completions of [CQ.Moderate]; 0: none
	MaxModeration time.Duration // and its time
	DeviceMemory  uint64        // bytes that experimental.AllocDeviceMemory may have; 0: none
	Window1       bool          // memory windows
	Window2       bool
	// What regions may be made experimental.FlushableGlobal and FlushablePersistent for.
	FlushGlobal, FlushPersistent bool
	Mlx5                         *Mlx5Features // nil on other devices
	EFA                          *EFAFeatures
}

// Mlx5Features are what mlx5dv reports of a device.
type Mlx5Features struct {
	Streams        int // of a [DCI]; 0: none
	ErroredStreams int
}

// EFAFeatures are what efadv reports of a device.
type EFAFeatures struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInline              int
	MaxRDMA                int // bytes of a READ or WRITE
	Read, Write            bool
	RNRRetry               bool
	Sender                 bool // [FieldSender]
}

// Device capability bits (enum ibv_device_cap_flags).
const (
	capMemWindow = 1 << 17
	capWindow2B  = 1 << 24
	// In enum ib_uverbs_device_cap_flags, of kernels from 6.3 on.
	capFlushGlobal     = 1 << 38
	capFlushPersistent = 1 << 39
)

// Features asks the device and its provider.
func (d *Device) Features() (Features, error) {
	f := Features{DeviceAttr: d.Attr()}
	var x cgo.DeviceAttrEx
	err := d.life.With("query", func() error { return opError("query", d.name, cgo.QueryDeviceEx(d.ctx, &x)) })
	if err != nil {
		return f, err
	}
	f.OnDemand = x.ODP&1 != 0
	f.OnDemandRC, f.OnDemandUD = x.ODPRC, x.ODPUD
	f.TimestampMask, f.ClockKHz = x.TimestampMask, x.ClockKHz
	f.MinRate, f.MaxRate = x.PacingMin, x.PacingMax
	f.MaxModerate, f.MaxModeration = int(x.ModCount), time.Duration(x.ModPeriod)*time.Microsecond
	f.DeviceMemory = x.MaxDMSize
	f.Window1 = f.CapFlags&capMemWindow != 0
	f.Window2 = f.CapFlags&capWindow2B != 0
	f.FlushGlobal, f.FlushPersistent = x.CapFlags&capFlushGlobal != 0, x.CapFlags&capFlushPersistent != 0
	if m, err := d.Mlx5(); err == nil {
		f.Mlx5 = &m
	} else if !errors.Is(err, ErrUnsupported) {
		return f, err
	}
	if e, err := d.EFA(); err == nil {
		f.EFA = &e
	} else if !errors.Is(err, ErrUnsupported) {
		return f, err
	}
	return f, nil
}

// lacks returns a use of regions that the device does not support, or "".
func (d *Device) lacks(a Access) string {
	f, err := d.Features()
	switch {
	case err != nil:
	case a&onDemand != 0 && !f.OnDemand:
		return "on-demand paging"
	case a&flushableGlobal != 0 && !f.FlushGlobal, a&flushablePersistent != 0 && !f.FlushPersistent:
		return "FLUSH"
	case a&RemoteAtomic != 0 && f.Atomic == AtomicNone:
		return "atomics"
	case f.EFA != nil && a&RemoteWrite != 0 && !f.EFA.Write:
		return "RDMA WRITE"
	case f.EFA != nil && a&RemoteRead != 0 && !f.EFA.Read:
		return "RDMA READ"
	}
	return ""
}

// Mlx5 asks mlx5dv; [ErrUnsupported] says that this is no such device or that
// libmlx5 is missing.
func (d *Device) Mlx5() (Mlx5Features, error) {
	var f Mlx5Features
	err := d.life.With("query", func() error {
		if !cgo.Mlx5Supported(d.ctx) {
			return opError("query", d.name, ErrUnsupported, "no device of mlx5, or no libmlx5.so.1")
		}
		var a cgo.Mlx5Attr
		if err := cgo.Mlx5Query(d.ctx, &a); err != nil {
			return opError("query", d.name, unsupported(err), "mlx5dv_query_device")
		}
		if a.LogStreams > 0 {
			f.Streams, f.ErroredStreams = 1<<a.LogStreams, 1<<a.LogErrored
		}
		return nil
	})
	return f, err
}

// EFA asks efadv; [ErrUnsupported] says that this is no such device or that
// libefa is missing.
func (d *Device) EFA() (EFAFeatures, error) {
	const capRead, capRNRRetry, capSender, capWrite = 1 << 0, 1 << 1, 1 << 2, 1 << 3
	var f EFAFeatures
	err := d.life.With("query", func() error {
		var a cgo.EFAAttr
		if err := cgo.EFAQuery(d.ctx, &a); err != nil {
			return opError("query", d.name, unsupported(err), "no device of EFA, or no libefa.so.1")
		}
		f = EFAFeatures{MaxSendWR: int(a.MaxSQWR), MaxRecvWR: int(a.MaxRQWR), MaxSendSGE: int(a.MaxSQSGE), MaxRecvSGE: int(a.MaxRQSGE),
			MaxInline: int(a.InlineBufSize), MaxRDMA: int(a.MaxRDMASize), Read: a.Caps&capRead != 0, Write: a.Caps&capWrite != 0,
			RNRRetry: a.Caps&capRNRRetry != 0, Sender: a.Caps&capSender != 0}
		return nil
	})
	return f, err
}

// sendOps are the operations to make an SRD queue pair for.
func (f EFAFeatures) sendOps() SendOps {
	const write, writeImm, send, sendImm, read = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4
	ops := SendOps(send | sendImm)
	if f.Read {
		ops |= read
	}
	if f.Write {
		ops |= write | writeImm
	}
	return ops
}

// Clock reads the device's clock, in ticks of [Features.ClockKHz].
func (d *Device) Clock() (uint64, error) {
	var t uint64
	err := d.life.With("read clock of", func() error {
		var err error
		t, err = cgo.QueryClock(d.ctx)
		return opError("read clock of", d.name, unsupported(err))
	})
	return t, err
}

// setRate is [experimental.SetRate].
func (q *QP) setRate(kbps uint32, burst uint32, packet uint16) error {
	const op = "limit rate of"
	return q.life.With(op, func() error {
		err := unsupported(cgo.RateLimitQP(q.qp, kbps, burst, packet))
		detail := fmt.Sprintf("%d kbit/s", kbps)
		// libmlx5 finds any rate too high where there are none.
		if isErrno(err, syscall.EINVAL) {
			if f, ferr := q.pd.dev.Features(); ferr == nil && f.MaxRate == 0 {
				err, detail = class(ErrUnsupported, err), detail+": the device has no rates"
			}
		}
		return opError(op, q.life.Label, err, detail)
	})
}

// ResetStream makes a stream of a [DCI] usable again after an error of one of
// its requests, once all of its requests have completed.
func (q *QP) ResetStream(stream int) error {
	return q.life.With("reset stream of", func() error {
		return opError("reset stream of", q.life.Label, unsupported(cgo.Mlx5StreamReset(q.qp, uint16(stream))), "stream ", stream)
	})
}
