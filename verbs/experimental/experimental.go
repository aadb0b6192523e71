// Package experimental has the features of package verbs that have run on no device: drivers and
// simulated devices refuse them, or the calls into rdma-core's libraries were compared with what
// a stand-in records. They may change or go.
package experimental

import (
	"io"
	"os"

	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/flow"
)

var (
	registerDMABuf       = hook.RegisterDMABuf.(func(*verbs.PD, *os.File, uint64, int, verbs.MRConfig) (*verbs.MR, error))
	registerAddressSpace = hook.RegisterAddressSpace.(func(*verbs.PD, verbs.MRConfig) (*verbs.MR, error))
	sgeOf                = hook.SGEOf.(func(*verbs.MR, []byte) verbs.SGE)
	prefetch             = hook.Prefetch.(func(*verbs.MR, int, int, uint32, bool) error)
	allocDeviceMemory    = hook.AllocDeviceMemory.(func(*verbs.Device, int, int) (io.Closer, error))
	registerDeviceMemory = hook.RegisterDeviceMemory.(func(*verbs.PD, io.Closer, int, int, verbs.MRConfig) (*verbs.MR, error))
	allocNullMR          = hook.AllocNullMR.(func(*verbs.PD) (*verbs.MR, error))
	setRate              = hook.SetRate.(func(*verbs.QP, uint32, uint32, uint16) error)
	setUDPSourcePort     = hook.SetUDPSourcePort.(func(*verbs.QP, uint16) error)
	setLAGPort           = hook.SetLAGPort.(func(*verbs.QP, int) error)
	lagPort              = hook.LAGPort.(func(*verbs.QP) (int, int, error))
	flush                = hook.Flush.(func(*verbs.Batch, uint64, verbs.SendFlags, verbs.Remote, uint32, uint8))
	sender               = hook.Sender.(func(*verbs.WCEx) verbs.GID)
	createAHFromWCEx     = hook.CreateAHFromWCEx.(func(*verbs.PD, *verbs.WCEx, []byte, uint8) (*verbs.AH, error))
	ahNumber             = hook.AHNumber.(func(*verbs.AH) (uint16, error))
	createFlow           = hook.CreateFlow.(func(*verbs.QP, flow.Rule) (io.Closer, error))
)

// Rights and kinds of memory regions.
const (
	OnDemand  verbs.Access = 1 << 6 // IBV_ACCESS_ON_DEMAND: pages are mapped when they are needed, and not pinned
	HugePages verbs.Access = 1 << 7 // IBV_ACCESS_HUGETLB: with OnDemand: all of it lies in huge pages

	FlushableGlobal     verbs.Access = 1 << 8 // IBV_ACCESS_FLUSH_GLOBAL: peers may FLUSH for visibility
	FlushablePersistent verbs.Access = 1 << 9 // IBV_ACCESS_FLUSH_PERSISTENT: peers may FLUSH for persistence
)

// RegisterDMABuf registers memory of another device (a GPU, an accelerator)
// that its driver exported as a dmabuf: length bytes from offset on. The
// region has no [verbs.MR.Bytes]; offsets of [verbs.MR.SGE] count from its start. The file
// may be closed afterwards.
func RegisterDMABuf(p *verbs.PD, f *os.File, offset uint64, length int, cfg verbs.MRConfig) (*verbs.MR, error) {
	return registerDMABuf(p, f, offset, length, cfg)
}

// RegisterAddressSpace registers all memory of the process, now and later, on
// demand (implicit on-demand paging): work requests name parts of it by
// [SGEOf]. The region has no [verbs.MR.Bytes], and giving its key to a peer gives
// away everything.
func RegisterAddressSpace(p *verbs.PD, cfg verbs.MRConfig) (*verbs.MR, error) {
	return registerAddressSpace(p, cfg)
}

// SGEOf names memory by its address, for regions from
// [RegisterAddressSpace]. The slice must stay where it is until the work
// request has completed: outside the Go heap, or pinned by [runtime.Pinner].
func SGEOf(m *verbs.MR, b []byte) verbs.SGE { return sgeOf(m, b) }

// Advice says how memory registered [OnDemand] will be used (enum
// ib_uverbs_advise_mr_advice).
type Advice uint32

const (
	AdvisePrefetch      Advice = 0 // IBV_ADVISE_MR_ADVICE_PREFETCH: it will be read
	AdvisePrefetchWrite Advice = 1 // IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: it will be written
)

// Prefetch maps the pages of n bytes at offset off for the device before it needs them.
// With wait it returns when they are mapped.
func Prefetch(m *verbs.MR, off, n int, a Advice, wait bool) error {
	return prefetch(m, off, n, uint32(a), wait)
}

// DeviceMemory is memory on the device itself. Work requests that read or write it do not
// cross the bus to the host. That is good for small objects that many peers use, such as
// locks and counters. There is little of it: see DeviceMemory of [verbs.Features].
type DeviceMemory interface {
	// CopyIn writes b to the memory, from offset off on. mlx5 takes offsets and lengths
	// that are multiples of 4 bytes, and writes each 4 bytes at once; order and
	// atomicity beyond that are not defined. Safe for concurrent use, like CopyOut.
	CopyIn(off int, b []byte) error
	// CopyOut reads len(b) bytes of the memory, from offset off on, as CopyIn writes.
	CopyOut(b []byte, off int) error
	// Close frees the memory. It is refused with [verbs.ErrInUse] while regions of it are open.
	// Closing twice is not an error.
	Close() error
}

// AllocDeviceMemory allocates size bytes of the device's memory; their address is
// a multiple of align, a power of two, where 0 means any. What is in it at first
// is not defined. The memory lasts until Close. [verbs.ErrUnsupported] says that the
// device has none.
func AllocDeviceMemory(d *verbs.Device, size, align int) (DeviceMemory, error) {
	m, err := allocDeviceMemory(d, size, align)
	if err != nil {
		return nil, err
	}
	return m.(DeviceMemory), nil
}

// RegisterDeviceMemory registers length bytes of the device's memory, from offset
// off on. The region has no [verbs.MR.Bytes]; its first byte has address 0 in work
// requests, so cfg.Addr is left out. The memory stays the caller's, and cannot be
// closed before the region.
func RegisterDeviceMemory(p *verbs.PD, m DeviceMemory, off, length int, cfg verbs.MRConfig) (*verbs.MR, error) {
	return registerDeviceMemory(p, m, off, length, cfg)
}

// AllocNullMR makes a region without memory, for scatter lists: writes to it are
// discarded, and reads return zeroes. Any range of it is valid; use [verbs.MR.SGE] with offset
// 0. It has no [verbs.MR.Bytes], and no key for peers.
func AllocNullMR(p *verbs.PD) (*verbs.MR, error) { return allocNullMR(p) }

// OpFlush is the operation of [Flush], for [verbs.QPConfig].
const OpFlush verbs.SendOps = 1 << 11 // IBV_QP_EX_WITH_FLUSH: built with the headers of rdma-core 45 or later

// FlushType says what a FLUSH reaches.
type FlushType uint8

const (
	FlushGlobal     FlushType = 1 // IBV_FLUSH_GLOBAL: the data is visible to all of the peer's host
	FlushPersistent FlushType = 2 // IBV_FLUSH_PERSISTENT: it survives a loss of power
)

// Flush adds a FLUSH to a batch: it completes once all earlier WRITEs of the queue pair to
// length bytes at that place are visible or persistent. 0 bytes means the whole
// region. The queue pair must be made with [OpFlush]; the peer's queue pair and region, in their
// Access, with [FlushableGlobal] or [FlushablePersistent].
func Flush(b *verbs.Batch, id uint64, flags verbs.SendFlags, at verbs.Remote, length uint32, what FlushType) {
	flush(b, id, flags, at, length, uint8(what))
}

// SetRate limits what a queue pair sends, in kbit/s; burst and packet are the
// largest burst and the typical packet in bytes, or 0. 0 kbit/s ends the limit.
// The queue pair must be in [verbs.StateRTS]. A device without rates (MaxRate of
// [verbs.Features]) refuses with [verbs.ErrUnsupported].
func SetRate(q *verbs.QP, kbps, burst uint32, packet uint16) error {
	return setRate(q, kbps, burst, packet)
}

// SetUDPSourcePort changes the UDP source port of a connected queue pair while
// it is in use, and so its path through a network with several. The queue pair
// is an RC or UC one in [verbs.StateRTS]; the port is from 49152 to 65535. Only
// mlx5 can do so: elsewhere this is [verbs.ErrUnsupported], and the port follows from
// FlowLabel in [verbs.ConnectConfig], see [verbs.FlowLabelFor]. Safe for concurrent use.
func SetUDPSourcePort(q *verbs.QP, port uint16) error { return setUDPSourcePort(q, port) }

// SetLAGPort chooses the physical port, from 1 on, by which the packets of a queue
// pair leave a bond of RoCE ports. The queue pair is in [verbs.StateRTS]; a later
// change of its state may undo the choice. Without a bond, and on other devices
// than mlx5, this is [verbs.ErrUnsupported]. Safe for concurrent use.
func SetLAGPort(q *verbs.QP, port int) error { return setLAGPort(q, port) }

// LAGPort returns the port that was chosen for a queue pair in a bond, and the one by
// which its packets leave now, which differs while the chosen port is down. The queue
// pair and the errors are as for [SetLAGPort].
func LAGPort(q *verbs.QP) (port, active int, err error) { return lagPort(q) }

// FieldSender is the GID of a datagram's sender, where packets have no route
// header: on EFA. It is for Fields of [verbs.CQConfig].
const FieldSender verbs.WCFields = 1 << 62

// Sender returns the GID of a received datagram's sender; zero if the queue was not
// asked for [FieldSender], and if there is an address handle to the sender
// already: its [AHNumber] is [verbs.WC.SLID].
func Sender(w *verbs.WCEx) verbs.GID { return sender(w) }

// CreateAHFromWCEx is [verbs.PD.CreateAHFromWC] for completions of a queue with [FieldSender], and
// does the same for other completions. EFA names only senders without an address handle.
// For the others, [verbs.WC.SLID] is the [AHNumber] of the handle to reply with.
func CreateAHFromWCEx(p *verbs.PD, wc *verbs.WCEx, grh []byte, port uint8) (*verbs.AH, error) {
	return createAHFromWCEx(p, wc, grh, port)
}

// AHNumber returns the number that EFA gives an address handle in completions. Other
// devices return [verbs.ErrUnsupported].
func AHNumber(a *verbs.AH) (uint16, error) { return ahNumber(a) }
