package dc

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// hardware is the initiator on a device with DCIs.
type hardware struct {
	cfg  InitiatorConfig
	gid  verbs.GIDEntry
	mtu  verbs.MTU
	cq   *verbs.CQ
	park parker
	turn chan struct{} // holds a token while somebody waits

	mu     sync.Mutex
	core   *hardwareCore
	dcis   []dciQueue
	peers  map[peerName]*Peer
	all    []*hardwarePeer // by the peer's number; nil: forgotten
	spare  []uint32        // numbers of those
	done   []Completion    // that came without a completion of the device
	wcs    [32]verbs.WC
	parked [32]verbs.WC // of the one who waits
	acting sync.WaitGroup
	closed bool

	routes routes
}

// dciQueue is the queue pair of a DCI.
type dciQueue struct {
	qp    *verbs.QP
	batch *verbs.Batch
}

// maxStreams of a DCI that are used, if the device has as many.
const maxStreams = 8

// newHardware makes DCIs, or answers [verbs.ErrUnsupported].
func newHardware(cfg InitiatorConfig) (h *hardware, err error) {
	dev := cfg.PD.Device()
	features, err := dev.Mlx5()
	if err != nil {
		return nil, err
	}
	h = &hardware{cfg: cfg, turn: make(chan struct{}, 1), peers: make(map[peerName]*Peer)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.gid, h.mtu, err = local(dev, cfg.GID, cfg.MTU); err != nil {
		return h, err
	}
	h.routes.init(cfg.PD, h.gid)
	if h.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: cfg.Contexts * cfg.Depth}); err != nil {
		return h, err
	}
	h.park.cq = h.cq
	streams := min(features.Streams, maxStreams)
	if cfg.Streams != 0 {
		streams = max(cfg.Streams, 0)
	}
	if streams > features.Streams {
		return h, fmt.Errorf("%w: %d streams of a DCI; the device has %d", verbs.ErrAttributes, streams, features.Streams)
	}
	h.core = newHardwareCore(cfg.Contexts, max(streams, 1), cfg.Depth, cfg.Quota)
	for range cfg.Contexts {
		if err := h.addDCI(streams, min(streams, features.ErroredStreams)); err != nil {
			return h, err
		}
	}
	return h, nil
}

// local is the address and the MTU of this end.
func local(dev *verbs.Device, gid verbs.GIDEntry, mtu verbs.MTU) (verbs.GIDEntry, verbs.MTU, error) {
	if gid == (verbs.GIDEntry{}) {
		var err error
		if gid, err = dev.FindGID(verbs.GIDQuery{}); err != nil {
			return gid, 0, err
		}
	}
	if mtu != 0 {
		return gid, mtu, nil
	}
	port, err := dev.Port(gid.Port)
	return gid, port.ActiveMTU, err
}

func (h *hardware) addDCI(streams, errored int) error {
	cfg := verbs.QPConfig{Type: verbs.DCI, SendCQ: h.cq, GID: h.gid, MaxSendWR: h.cfg.Depth, MaxInline: h.cfg.MaxInline, Streams: streams, ErroredStreams: errored}
	if h.cfg.Masked {
		cfg.Ops = verbs.OpMasked
	}
	qp, err := h.cfg.PD.CreateQP(cfg)
	if err != nil {
		return err
	}
	h.dcis = append(h.dcis, dciQueue{qp: qp})
	q := &h.dcis[len(h.dcis)-1]
	if q.batch, err = qp.NewBatch(h.cfg.Depth); err != nil {
		return err
	}
	return qp.ActivateWith(h.connect())
}

// connect are the timers of a DCI.
func (h *hardware) connect() verbs.ConnectConfig {
	return verbs.ConnectConfig{MTU: h.mtu, AckTimeout: h.cfg.AckTimeout, Retries: 6}
}

// post is [Initiator.Post].
func (h *hardware) post(p *Peer, rs []Request) (int, error) {
	h.mu.Lock()
	x, err := h.reach(p)
	if err != nil {
		h.mu.Unlock()
		return 0, opError("post to", p.addr.String(), err)
	}
	switch {
	case len(rs) == 0:
		h.mu.Unlock()
		return 0, nil
	case !h.core.place(&x.dciPeer):
		h.mu.Unlock()
		return 0, opError("post to", p.addr.String(), fmt.Errorf("no DCI is left: %w", h.core.lost))
	}
	n, err := h.postTo(x, rs[:h.core.admit(&x.dciPeer, len(rs))])
	h.core.stats.Hits += uint64(n)
	if err != nil || n == len(rs) {
		h.core.settle(&x.dciPeer)
		h.mu.Unlock()
		return n, err
	}
	more := min(len(rs)-n, h.cfg.MaxPending-len(x.queue))
	if more > 0 {
		x.queue = append(x.queue, rs[n:n+more]...)
		h.core.enqueue(&x.dciPeer, more)
	}
	h.core.settle(&x.dciPeer)
	h.perform()
	if n += more; n < len(rs) {
		return n, opError("post to", p.addr.String(), fmt.Errorf("%w: %d requests wait", ErrQueueFull, h.cfg.MaxPending))
	}
	return n, nil
}

// postTo posts requests for which there is room, all or none.
func (h *hardware) postTo(x *hardwarePeer, rs []Request) (int, error) {
	if len(rs) == 0 {
		return 0, nil
	}
	d := x.dci
	b := h.dcis[d.index].batch
	to := x.to
	if len(d.streams) > 1 {
		to.Stream = 1 + x.stream
	}
	b.SetTarget(to)
	for k := range rs {
		rs[k].add(b, d.number(k))
	}
	if _, err := b.Post(); err != nil {
		return 0, opError("post to", x.owner.addr.String(), err)
	}
	for k := range rs {
		h.core.posted(&x.dciPeer, rs[k].ID, rs[k].Op)
	}
	return len(rs), nil
}

// pump posts what waits and now finds room.
func (h *hardware) pump(d *dci) {
	for {
		p, n := h.core.turn(d)
		if p == nil {
			return
		}
		x := h.all[p.owner.number]
		rs := x.queue[:n]
		if _, err := h.postTo(x, rs); err != nil {
			// What was wrong with one is not told apart from the others.
			h.fail(p.owner, rs, err)
			h.core.settle(p)
		}
		x.queue = slices.Delete(x.queue, 0, n)
		if len(x.queue) == 0 {
			x.queue = nil
		}
	}
}

// fail ends requests without asking the device.
func (h *hardware) fail(p *Peer, rs []Request, err error) {
	for _, r := range rs {
		h.done = append(h.done, Completion{r.ID, p, r.Op, err})
	}
	h.park.wake()
}

// stats are those of [Initiator.Stats].
func (h *hardware) stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.core.stats
	s.Live = h.core.live()
	return s
}

func (h *hardware) close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.acting.Wait()
	h.park.wake()
	var errs []error
	for _, q := range h.dcis {
		errs = append(errs, q.qp.Close())
	}
	errs = append(errs, h.routes.close())
	if h.cq != nil {
		errs = append(errs, h.cq.Close())
	}
	return errors.Join(errs...)
}
