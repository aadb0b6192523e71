package verbs

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// registerDMABuf is [experimental.RegisterDMABuf].
func (p *PD) registerDMABuf(f *os.File, offset uint64, length int, cfg MRConfig) (*MR, error) {
	if length <= 0 {
		return nil, opError("register dmabuf in", p.life.Label, ErrAttributes, "length ", length)
	}
	access, err := cfg.access("register dmabuf in", p)
	if err != nil {
		return nil, err
	}
	m := &MR{size: length, addr: cmp.Or(cfg.Addr, dmabufAddr(offset)), access: access, unmap: func() error { return nil }, pd: p}
	if err := m.life.Attach("mr", life.Label("mr"), &p.life); err != nil {
		return nil, err
	}
	conn, err := f.SyscallConn()
	if err == nil {
		cerr := conn.Control(func(fd uintptr) {
			m.mr, m.lkey, m.rkey, err = cgo.RegDMABuf(p.pd, offset, length, m.addr, int(fd), uint32(m.access))
		})
		if err == nil {
			err = cerr
		}
	}
	if err != nil {
		p.life.RemoveChild("mr")
		return nil, opError("register dmabuf in", p.life.Label, unsupported(err), fmt.Sprintf("%d bytes of %s", length, f.Name()))
	}
	return m, nil
}

// dmabufAddr is the address by which work requests name the first byte of a
// dmabuf. Any will do that lies in its page as that byte does in the dmabuf's,
// whatever the size of the pages.
func dmabufAddr(offset uint64) uint64 { return offset & (hugePage - 1) }

// registerAddressSpace is [experimental.RegisterAddressSpace].
func (p *PD) registerAddressSpace(cfg MRConfig) (*MR, error) {
	access, err := cfg.access("register address space in", p)
	if err != nil {
		return nil, err
	}
	m := &MR{size: math.MaxInt, access: access | onDemand, unmap: func() error { return nil }, pd: p}
	if err := m.life.Attach("mr", life.Label("mr"), &p.life); err != nil {
		return nil, err
	}
	if m.mr, m.lkey, m.rkey, err = cgo.RegMR(p.pd, 0, -1, 0, uint32(m.access)); err != nil {
		p.life.RemoveChild("mr")
		if p.dev.lacks(onDemand) != "" {
			err = class(ErrUnsupported, err)
		}
		return nil, opError("register address space in", p.life.Label, err)
	}
	return m, nil
}

// sgeOf is [experimental.SGEOf].
func (m *MR) sgeOf(b []byte) SGE {
	if m.buf != nil || m.access&onDemand == 0 {
		return badSGE
	}
	if len(b) > maxSGELength {
		return longSGE
	}
	return SGE{Addr: addressOf(b), Length: uint32(len(b)), LKey: m.lkey}
}

// SetAccess changes what the region may be used for. A region that was registered
// ReadOnly stays so until a right to write is given. Requests under way may be
// judged by the old or the new rights; its keys may change, so nothing may be
// posted with the region meanwhile. After an error that says that the region is
// lost only Close is left.
func (m *MR) SetAccess(access Access) error {
	const changeAccess = 1 << 2
	if m.access&LocalWrite != 0 || access&(RemoteWrite|RemoteAtomic) != 0 {
		access |= LocalWrite
	}
	err := m.reregister(changeAccess, nil, access)
	if err == nil {
		m.access = access
	}
	return err
}

// MoveTo moves the region to another protection domain of the same device.
func (m *MR) MoveTo(p *PD) error {
	const changePD = 1 << 1
	if p.dev != m.pd.dev {
		return opError("move", m.life.Label, ErrAttributes, "to a protection domain of another device")
	}
	return m.life.With("move", func() error { // Close must not give back to the old parent meanwhile
		if err := p.life.AddChild("mr"); err != nil {
			return err
		}
		// Rights go with a change of rights alone, or libibverbs refuses them.
		if err := m.reregister(changePD, p, 0); err != nil {
			p.life.RemoveChild("mr")
			return err
		}
		m.life.Moved("mr", &p.life, func() { m.pd = p })
		return nil
	})
}

// lostBelow: from libibverbs' IBV_REREG_MR_ERR_CMD on, a region is unusable.
const lostBelow = -3

func (m *MR) reregister(flags uint32, p *PD, access Access) error {
	return m.life.With("re-register", func() error {
		var pd cgo.PD
		if p != nil {
			pd = p.pd
		}
		lkey, rkey, code, err := cgo.ReregMR(m.mr, flags, pd, 0, 0, uint32(access))
		if err != nil {
			detail := "the region is as it was"
			if code < lostBelow && !isErrno(err, syscall.EOPNOTSUPP) {
				detail = "the region is lost"
			}
			return opError("re-register", m.life.Label, unsupported(err), detail)
		}
		m.lkey, m.rkey = lkey, rkey
		return nil
	})
}

// prefetch is [experimental.Prefetch].
func (m *MR) prefetch(off, n int, advice uint32, wait bool) error {
	const flush = 1
	s := m.SGE(off, n)
	if s.Length > maxSGELength {
		return opError("prefetch", m.life.Label, refusal(s), "offset ", off, ", length ", n)
	}
	flags := uint32(0)
	if wait {
		flags = flush
	}
	return m.life.With("prefetch", func() error {
		return opError("prefetch", m.life.Label, unsupported(cgo.AdviseMR(m.pd.pd, advice, flags, s)))
	})
}
