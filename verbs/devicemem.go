package verbs

import (
	"fmt"
	"math"
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// deviceMemory is an [experimental.DeviceMemory].
type deviceMemory struct {
	life life.Life
	dev  *Device
	dm   cgo.DM
	size int
}

// allocDeviceMemory is [experimental.AllocDeviceMemory].
func (d *Device) allocDeviceMemory(size, align int) (*deviceMemory, error) {
	const op = "allocate device memory on"
	if size <= 0 || align < 0 || align&(align-1) != 0 {
		return nil, opError(op, d.name, ErrAttributes, "size ", size, ", alignment ", align)
	}
	m := &deviceMemory{dev: d, size: size}
	if err := m.life.Attach("device memory", life.Label("device memory"), &d.life); err != nil {
		return nil, err
	}
	var err error
	if m.dm, err = cgo.AllocDM(d.ctx, size, max(0, bits.Len(uint(align))-1)); err != nil {
		m.life.Detach("device memory")
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return nil, opError(op, d.name, unsupported(err), fmt.Sprintf("%d bytes; Features.DeviceMemory tells what the device has", size))
	}
	return m, nil
}

// CopyIn writes b to the memory, from offset off on. mlx5 takes offsets and lengths
// that are multiples of 4 bytes, and writes each 4 bytes at once; order and
// atomicity beyond that are not defined. Safe for concurrent use, like CopyOut.
func (m *deviceMemory) CopyIn(off int, b []byte) error {
	return m.copy("copy to", off, b, func() error { return cgo.CopyToDM(m.dm, uint64(off), b) })
}

// CopyOut reads len(b) bytes of the memory, from offset off on, as CopyIn writes.
func (m *deviceMemory) CopyOut(b []byte, off int) error {
	return m.copy("copy from", off, b, func() error { return cgo.CopyFromDM(b, m.dm, uint64(off)) })
}

func (m *deviceMemory) copy(op string, off int, b []byte, f func() error) error {
	if off < 0 || off > m.size || len(b) > m.size-off {
		return opError(op, m.life.Label, ErrRange, fmt.Sprintf("%d bytes at offset %d of %d", len(b), off, m.size))
	}
	if len(b) == 0 {
		return m.life.Open(op)
	}
	return m.life.With(op, func() error {
		err := f()
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return opError(op, m.life.Label, err, fmt.Sprintf("%d bytes at offset %d: mlx5 wants multiples of 4", len(b), off))
	})
}

// Close frees the memory. It is refused with [ErrInUse] while regions of it are open.
// Closing twice is not an error.
func (m *deviceMemory) Close() error {
	return m.life.Close("device memory", nil, func() error { return m.dev.destroyed(cgo.FreeDM(m.dm)) })
}

// registerDeviceMemory is [experimental.RegisterDeviceMemory].
func (p *PD) registerDeviceMemory(m *deviceMemory, off, length int, cfg MRConfig) (*MR, error) {
	const op = "register device memory in"
	refuse := func(err error, detail ...any) (*MR, error) { return nil, opError(op, p.life.Label, err, detail...) }
	if err := p.life.Open(op); err != nil {
		return nil, err
	}
	switch {
	case m == nil:
		return refuse(ErrAttributes, "no memory")
	case m.dev != p.dev:
		return refuse(ErrAttributes, "memory of another device")
	case off < 0 || length <= 0 || off > m.size || length > m.size-off:
		return refuse(ErrRange, fmt.Sprintf("%d bytes at offset %d of %d", length, off, m.size))
	case cfg.Addr != 0 || cfg.Pages != PagesNormal:
		return refuse(ErrAttributes, "it has neither a chosen address nor pages")
	case cfg.Access&^(LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic|RelaxedOrder) != 0:
		return refuse(ErrAttributes, fmt.Sprintf("access %#x", uint32(cfg.Access)))
	}
	access, err := cfg.access(op, p)
	if err != nil {
		return nil, err
	}
	r := &MR{pd: p, size: length, access: access, unmap: func() error { return nil }}
	if err := r.life.Attach("mr", life.Label("mr"), &p.life, &m.life); err != nil {
		return nil, err
	}
	if r.mr, r.lkey, r.rkey, err = cgo.RegDM(p.pd, m.dm, uint64(off), length, uint32(access)); err != nil {
		r.life.Detach("mr")
		return refuse(unsupported(err), fmt.Sprintf("%d bytes at offset %d of %s", length, off, m.life.Label))
	}
	return r, nil
}

// allocNullMR is [experimental.AllocNullMR].
func (p *PD) allocNullMR() (*MR, error) {
	m := &MR{pd: p, size: math.MaxInt, access: LocalWrite, unmap: func() error { return nil }}
	if err := m.life.Attach("mr", life.Label("mr"), &p.life); err != nil {
		return nil, err
	}
	var err error
	if m.mr, m.lkey, err = cgo.AllocNullMR(p.pd); err != nil {
		m.life.Detach("mr")
		return nil, opError("allocate null mr in", p.life.Label, unsupported(err))
	}
	return m, nil
}
