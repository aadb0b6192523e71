package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// Access says what a memory region, or the peer of a queue pair, may be used
// for.
type Access uint32

const (
	LocalWrite   Access = 1 << 0  // IBV_ACCESS_LOCAL_WRITE: the device may write: receives, READ and atomic results
	RemoteWrite  Access = 1 << 1  // IBV_ACCESS_REMOTE_WRITE: peers may WRITE
	RemoteRead   Access = 1 << 2  // IBV_ACCESS_REMOTE_READ: peers may READ
	RemoteAtomic Access = 1 << 3  // IBV_ACCESS_REMOTE_ATOMIC: peers may CMP_SWAP and FETCH_ADD
	BindWindow   Access = 1 << 4  // IBV_ACCESS_MW_BIND: memory windows may be bound to it
	onDemand     Access = 1 << 6  // IBV_ACCESS_ON_DEMAND: pages are mapped when they are needed, and not pinned
	hugePages    Access = 1 << 7  // IBV_ACCESS_HUGETLB: with OnDemand: all of it lies in huge pages
	RelaxedOrder Access = 1 << 20 // IBV_ACCESS_RELAXED_ORDERING: writes may become visible out of order (PCIe relaxed ordering)

	flushableGlobal     Access = 1 << 8 // IBV_ACCESS_FLUSH_GLOBAL: peers may FLUSH for visibility
	flushablePersistent Access = 1 << 9 // IBV_ACCESS_FLUSH_PERSISTENT: peers may FLUSH for persistence
)

// PageSize chooses the pages of a buffer.
type PageSize int

const (
	PagesNormal  PageSize = iota
	PagesHuge             // 2 MiB pages or an error
	PagesTryHuge          // 2 MiB pages when the process can have them, else normal
)

// MRConfig configures a memory region.
type MRConfig struct {
	// Access is what the region may be used for; LocalWrite is added to it.
	Access Access
	// ReadOnly leaves LocalWrite out. The device then only reads, so the memory may be
	// mapped without the right to write to it, such as a file of constants. Before Linux
	// 6.2 that holds for private mappings alone: memory that is mapped shared without the
	// right to write is refused with EFAULT. Receives, READs and atomics into the region
	// fail, and RemoteWrite and RemoteAtomic are refused.
	ReadOnly bool
	// Addr is the address by which work requests and peers name the first byte
	// of the region (ibv_reg_mr_iova), so that offsets into a file, say, can
	// serve as addresses. It must lie in a page of 4 KiB as the memory does. 0
	// means the memory's own.
	Addr uint64
	// Pages is for [PD.AllocMR] only.
	Pages PageSize
}

// MR is a registered memory region: memory that the device reads and writes directly.
//
// The bytes belong to the region from registration to Close. While a work
// request that names them is outstanding, the device may read or (for receives,
// READs and atomics) write them at any time, and so may peers that were given
// the rkey; the program must neither reuse nor interpret them until the
// completion. Close deregisters first and only then gives the memory back, so
// that a late request of a peer finds a dead key, never foreign memory.
type MR struct {
	life   life.Life
	pd     *PD
	mr     cgo.MR
	buf    []byte // nil for a dmabuf
	size   int
	addr   uint64
	lkey   uint32
	rkey   uint32
	access Access
	unmap  func() error
	shut   atomic.Bool
}

// AllocMR maps zeroed memory outside the Go heap and registers it. size is in
// bytes and is rounded up to whole pages only in the mapping: the region has
// exactly size bytes.
func (p *PD) AllocMR(size int, cfg MRConfig) (*MR, error) {
	if size <= 0 {
		return nil, opError("allocate mr in", p.life.Label, ErrAttributes, "size ", size)
	}
	if cfg.Pages == PagesTryHuge {
		// The host may have huge pages that are not for this process: then they are
		// mapped, but the memory behind them cannot be had.
		if m, err := p.allocMR(size, cfg, true); err == nil {
			return m, nil
		}
	}
	return p.allocMR(size, cfg, cfg.Pages == PagesHuge)
}

func (p *PD) allocMR(size int, cfg MRConfig, huge bool) (*MR, error) {
	mapped, err := mapMemory(size, huge)
	if err != nil {
		return nil, opError("map memory for", p.life.Label, err, fmt.Sprintf("%d bytes%s", size, hugeHint(huge)))
	}
	m, err := p.register(mapped[:size:size], cfg, func() error { return unmapMemory(mapped) })
	if err != nil {
		return nil, errors.Join(err, unmapMemory(mapped))
	}
	return m, nil
}

// RegisterMR registers a slice of the caller, which stays pinned until Close. What is
// registered is the array behind buf[:len(buf)]: appending to buf may move the data to
// another array, which is not registered. Memory shared with a device must not hold Go
// pointers, which a []byte cannot. A region that is never closed keeps its memory, and
// its protection domain, which refuses to close.
func (p *PD) RegisterMR(buf []byte, cfg MRConfig) (*MR, error) {
	if len(buf) == 0 {
		return nil, opError("register mr in", p.life.Label, ErrAttributes, "empty slice")
	}
	pin := new(runtime.Pinner)
	pin.Pin(&buf[0])
	pins.Store(pin, nil)
	unpin := func() error {
		pins.Delete(pin)
		pin.Unpin()
		return nil
	}
	m, err := p.register(buf[:len(buf):len(buf)], cfg, unpin)
	if err != nil {
		unpin()
		return nil, err
	}
	return m, nil
}

// pins are the pinners of all regions that are open. A region that the program has
// forgotten stays registered, and the runtime ends the process when it finds a pinner
// that nothing refers to.
var pins sync.Map

// Sizes of pages of the processors that this runs on.
const (
	smallestPage = 4096
	hugePage     = 2 << 20
)

// access is the access as devices know it.
func (c *MRConfig) access(op string, p *PD) (Access, error) {
	if !c.ReadOnly {
		return c.Access | LocalWrite, nil
	}
	if c.Access&(LocalWrite|RemoteWrite|RemoteAtomic) != 0 {
		return 0, opError(op, p.life.Label, ErrAttributes, "ReadOnly, and a right to write")
	}
	return c.Access, nil
}

func (p *PD) register(buf []byte, cfg MRConfig, unmap func() error) (*MR, error) {
	const op = "register mr in"
	access, err := cfg.access(op, p)
	if err != nil {
		return nil, err
	}
	own := addressOf(buf)
	m := &MR{pd: p, buf: buf, size: len(buf), addr: cmp.Or(cfg.Addr, own), access: access, unmap: unmap}
	if m.addr%smallestPage != own%smallestPage || m.addr+uint64(len(buf)) < m.addr {
		return nil, opError(op, p.life.Label, ErrAttributes, fmt.Sprintf("address %#x for memory at %#x", m.addr, own))
	}
	if err := m.life.Attach("mr", life.Label("mr"), &p.life); err != nil {
		return nil, err
	}
	mr, lkey, rkey, err := cgo.RegMR(p.pd, uintptr(own), len(buf), m.addr, uint32(access))
	if err != nil {
		p.life.RemoveChild("mr")
		if !isErrno(err, syscall.ENOMEM) {
			if missing := p.dev.lacks(access); missing != "" {
				return nil, opError(op, p.life.Label, class(ErrUnsupported, err), "the device has no ", missing)
			}
		}
		return nil, registerError(p.life.Label, len(buf), cfg.ReadOnly, err)
	}
	m.mr, m.lkey, m.rkey = mr, lkey, rkey
	return m, nil
}

func registerError(pd string, size int, readOnly bool, err error) error {
	const op = "register mr in"
	switch {
	case isErrno(err, syscall.ENOMEM):
		if limit, ok := memlockLimit(); ok {
			return opError(op, pd, class(ErrMemlock, err),
				fmt.Sprintf("%d bytes wanted, RLIMIT_MEMLOCK is %d for the whole process: raise it with 'ulimit -l unlimited', LimitMEMLOCK=infinity in the systemd unit or --ulimit memlock=-1 for the container", size, limit))
		}
		return opError(op, pd, err, size, " bytes; no limit of locked memory applies: the host is short of memory, or the device of memory keys")
	case isErrno(err, syscall.EFAULT) && readOnly:
		return opError(op, pd, err, size, " bytes, some of which are not mapped, or mapped shared and read-only, which Linux takes from 6.2 on")
	case isErrno(err, syscall.EFAULT):
		return opError(op, pd, err, size, " bytes, some of which are not mapped, or only for reading: see MRConfig.ReadOnly")
	}
	return opError(op, pd, err, size, " bytes")
}

func hugeHint(huge bool) string {
	if huge {
		return " of huge pages: see /proc/sys/vm/nr_hugepages, and the hugetlb limit of the cgroup"
	}
	return ""
}

// Close deregisters the region and gives its memory back. Slices from Bytes of
// an AllocMR region must not be touched any more. Closing twice is not an
// error.
func (m *MR) Close() error {
	return m.life.Close("mr", nil, func() error {
		if !m.shut.Load() {
			if err := m.pd.dev.destroyed(cgo.DeregMR(m.mr)); err != nil {
				return err
			}
			m.shut.Store(true)
		}
		return m.unmap()
	})
}

// Access is what the region may be used for, LocalWrite included.
func (m *MR) Access() Access { return m.access }

// Len is the size of the region in bytes.
func (m *MR) Len() int { return m.size }

// Bytes is the memory of the region. For a region from [PD.AllocMR] it is valid
// until Close, and nil afterwards: touching a slice that was taken before is
// then a fault that ends the process.
func (m *MR) Bytes() []byte {
	if m.life.Closed() {
		return nil
	}
	return m.buf
}

// SGE names n bytes at offset off for use in a work request. A range outside
// the region gives an entry that every post refuses with [ErrRange], more than 2^31 bytes
// one that is refused with [ErrTooLarge], and a closed region one that is refused with
// [ErrClosed].
func (m *MR) SGE(off, n int) SGE {
	if m.life.Closed() {
		return closedSGE
	}
	if off < 0 || n < 0 || off > m.size || n > m.size-off {
		return outside(off, n)
	}
	if uint64(n) > maxSGELength {
		return longSGE
	}
	return SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.lkey}
}

// Region describes the memory region to a peer.
func (m *MR) Region() Region {
	return Region{Addr: m.addr, Length: uint64(m.size), RKey: m.rkey}
}

// refusal returns the reason for which a piece of local memory was made too long.
func refusal(s SGE) error {
	switch s {
	case closedSGE:
		return ErrClosed
	case longSGE:
		return ErrTooLarge
	}
	return ErrRange
}

// outside returns an entry that marks a range outside its region, and tells it.
func outside(off, n int) SGE {
	return SGE{Addr: uint64(off), Length: badSGE.Length, LKey: uint32(max(math.MinInt32, min(n, math.MaxInt32)))}
}

// localMemory describes a piece of local memory that is refused.
func localMemory(s SGE) string {
	switch {
	case s == badSGE:
		return "local memory: of another region, or not registered"
	case s.Length == badSGE.Length:
		more := ""
		if s.LKey == math.MaxInt32 {
			more = " or more"
		}
		return fmt.Sprintf("local memory: offset %d, length %d%s", int64(s.Addr), int32(s.LKey), more)
	}
	return "local memory"
}

// SGE is one entry of a scatter/gather list: a piece of registered local memory, with the fields
// Addr (uint64), Length (uint32, in bytes) and LKey (uint32) of struct ibv_sge.
type SGE = cgo.SGE

// A message has at most 2^31 bytes; longer entries mark refused ranges.
const maxSGELength = 1 << 31

var (
	badSGE    = SGE{Length: 0xffffffff}
	closedSGE = SGE{Length: 0xfffffffe}
	longSGE   = SGE{Length: 0xfffffffd}
)
