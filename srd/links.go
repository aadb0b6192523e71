package srd

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	verbsdriver "github.com/goverbs/goverbs/verbs/driver"
)

// links are the UD queue pairs of an endpoint, each a path, and their memory.
type links struct {
	device
	ep    *Endpoint
	e     *engine.Engine
	out   engine.Out
	paths []*link

	unposted uint32 // paths with packets in their chain
	short    uint32 // paths with receives to be posted again
	posts    verbs.Batches
	posting  []*link // the links with batches in posts

	timed   uint8 // packets that were taken since the clock was read
	flushes uint8
	flushed [256]struct { // the last ones
		at time.Duration
		n  int // packets
	}

	slots [sendSlots]slot
}

// link is one of them. Its receives are few, unless it is the first, which has the number in
// the endpoint's address.
type link struct {
	qp       *verbs.QP
	index    int
	life     uint8 // of the queue pair: it is reset when it fails
	broken   bool
	cause    error // of that
	send     *verbs.Batch
	recv     *verbs.RecvBatch
	receives int
	base     int // offset of their memory
	pending  []uint32
	silent   []uint32 // slots that were sent and ask for no completion
	told     uint8    // packets that asked for one, up to firstTold
}

const (
	sendSlots   = 256
	fewReceives = 16
	signalEvery = 8
	firstTold   = 2 // packets of a path ask for a completion each: the host's times are learned from them

	recvBit       = 1 << 47
	postRecvsEach = 16
	timedEach     = 16 // packets that come at once have the clock read again
)

func newLinks(ep *Endpoint) error {
	l := &links{ep: ep}
	ep.driver = l
	cfg := &ep.cfg
	if cfg.QKey == 0 {
		cfg.QKey = verbs.DefaultQKey
	}
	dev := cfg.PD.Device()
	port, err := dev.Port(ep.gid.Port)
	if err != nil {
		return err
	}
	mtu, err := dev.LocalMTU(ep.gid)
	if err != nil {
		return err
	}
	stride := verbs.GRHSize + max(port.MaxMTU.Bytes(), wire.MaxHeaders)
	if err := l.open(ep, l, cfg.Receives+(cfg.Paths-1)*fewReceives, sendSlots, stride); err != nil {
		return err
	}
	base := 0
	for i := range cfg.Paths {
		k := &link{index: i, receives: fewReceives, base: base, silent: make([]uint32, 0, signalEvery)}
		if i == 0 {
			k.receives = cfg.Receives
		}
		base += k.receives
		if k.qp, err = l.create(ep, verbs.QPConfig{Type: verbs.UD, MaxSendWR: sendSlots, MaxRecvWR: k.receives, MaxInline: 192}); err != nil {
			return err
		}
		label := uint32(0)
		if !verbsdriver.SoftRoCE(dev) {
			// Multiplied, numbers that follow each other have ports that do not.
			label = verbs.FlowLabelFor(uint16(k.qp.Num() * 40503))
		}
		ep.handles.Labels = append(ep.handles.Labels, label)
		l.paths = append(l.paths, k)
		if k.send, err = l.d.NewBatch(k.qp, 64); err != nil {
			return err
		}
		if k.recv, err = l.d.NewRecvBatch(k.qp, k.receives); err != nil {
			return err
		}
	}
	l.e = engine.New(engine.Config{
		Config: ep.sessions(l.paths[0].qp.Num(), mtu.Bytes(), 0), Host: (*host)(ep), Silent: l.silent,
		Paths: cfg.Paths, MinTimeout: cfg.minTimeout,
	})
	ep.e = l.e
	return nil
}

// begin posts the receives of all queue pairs, and activates them.
func (l *links) begin() error {
	for _, k := range l.paths {
		if err := l.fill(k); err != nil {
			return err
		}
	}
	return nil
}

// fill posts all receives of a queue pair in INIT, and activates it.
func (l *links) fill(k *link) error {
	k.pending = k.pending[:0]
	for i := range k.receives {
		k.pending = append(k.pending, uint32(i))
	}
	l.addReceives(k)
	if _, err := k.recv.Post(); err != nil {
		return err
	}
	return k.qp.Activate()
}

// Lost implements [verbs.Engine].
func (l *links) Lost(err error) { l.ep.fail(err) }

// fails has a queue pair repaired. A flushed request does not show the cause, so a later error
// replaces it.
func (l *links) fails(k *link, err error) {
	if !k.broken {
		k.broken, k.cause = true, err
		l.e.Stats.Broken++
	}
	if errors.Is(k.cause, verbs.WCFlushed) {
		k.cause = err
	}
	l.ep.polls.nudge()
}

// mend resets queue pairs that failed, and reports whether all were reset. On Soft-RoCE a
// queue pair fails when a datagram cannot be sent. Packets in them are lost, as any may be.
func (l *links) mend() (all bool) {
	all = true
	for _, k := range l.paths {
		if !k.broken {
			continue
		}
		l.ep.logs.Warn("srd: path failed", "path", k.index, "err", k.cause)
		if err := l.restart(k); err != nil {
			l.ep.logs.Error("srd: path cannot be mended", "path", k.index, "err", err)
			all = false
			continue
		}
		k.broken = false
	}
	return all
}

func (l *links) restart(k *link) error {
	if err := k.qp.Quiesce(); err != nil {
		return err
	}
	k.life++
	for i := range l.slots {
		if s := &l.slots[i]; s.h != nil && int(s.path) == k.index {
			s.covered = 0
			l.release(k, uint32(i))
		}
	}
	k.silent = k.silent[:0]
	k.send.Reset()
	k.recv.Reset()
	if err := k.qp.Init(); err != nil {
		return err
	}
	return l.fill(k)
}

// close destroys everything; no call may be inside any more.
func (l *links) close() error { return l.device.close(l.ep) }
