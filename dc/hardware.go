package dc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/goverbs/goverbs/dc/internal/dci"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// hardware is the initiator on a device with DCIs: it drives a [dci.Machine].
type hardware struct {
	i      *Initiator
	mtu    verbs.MTU
	routes routes

	// perCompletion is how many requests of a list have one completion, at most: the others of a full queue have room before
	// all of the list is over.
	perCompletion int32

	// Guarded by the initiator's lock.
	core   *dci.Machine
	dcis   []dciQueue
	hits   uint64
	acting sync.WaitGroup
}

// dciQueue is the queue pair of a DCI.
type dciQueue struct {
	qp    *verbs.QP
	batch *verbs.Batch
	ring  ring
}

// hardPeer is what an initiator knows of a DCT.
type hardPeer struct {
	m     dci.Peer
	owner *Peer
	to    verbs.Target
	route *route
}

// maxStreams of a DCI that are used, if the device has as many.
const maxStreams = 8

// newHardware makes DCIs, or returns [verbs.ErrUnsupported].
func newHardware(i *Initiator) (_ backend, err error) {
	cfg := &i.cfg
	dev := cfg.PD.Device()
	features, err := dev.Mlx5()
	if err != nil {
		return nil, err
	}
	setInt(&cfg.Depth, 64)
	h := &hardware{i: i, perCompletion: int32(max(cfg.Depth/4, 1))}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close(), i.closeQueue())
		}
	}()
	if err := h.routes.init(cfg.PD, cfg.GID, cfg.TrafficClass); err != nil {
		return nil, err
	}
	changes := driver.FollowGID(i.ctx, dev, h.routes.gid.entry(), nil)
	if h.mtu, err = localMTU(dev, h.routes.gid.entry(), cfg.MTU); err != nil {
		return nil, err
	}
	streams := min(features.Streams, maxStreams)
	if cfg.Streams != 0 {
		streams = max(cfg.Streams, 0)
	}
	if streams > features.Streams {
		return nil, fmt.Errorf("%w: %d streams of a DCI; the device has %d", verbs.ErrAttributes, streams, features.Streams)
	}
	if err := i.dispatch(cfg.Contexts * cfg.Depth); err != nil {
		return nil, err
	}
	h.core = dci.New(cfg.Contexts, max(streams, 1), cfg.Depth, cfg.Quota)
	for range cfg.Contexts {
		if err := h.addDCI(streams, min(streams, features.ErroredStreams)); err != nil {
			return nil, err
		}
	}
	i.work.Go(func() { h.follow(changes) })
	return h, nil
}

// localMTU returns mtu, or if that is 0 the MTU of a local GID.
func localMTU(dev *verbs.Device, gid verbs.GIDEntry, mtu verbs.MTU) (verbs.MTU, error) {
	if mtu != 0 {
		return mtu, nil
	}
	return dev.LocalMTU(gid)
}

// follow has address handles made anew when the local address has changed. DCIs name none.
func (h *hardware) follow(changes iter.Seq2[verbs.GIDEntry, error]) {
	for now, err := range changes {
		if err != nil {
			h.i.cfg.Logger.Warn("dc: the local address is gone", "gid", h.routes.gid.entry().GID, "err", err)
			continue
		}
		h.routes.gid.put(now)
		h.routes.expire()
		h.i.mu.Lock()
		for _, p := range h.i.peers {
			for ; p != nil; p = p.next {
				if err := h.rerouted(p); err != nil {
					h.i.cfg.Logger.Warn("dc: address handle", "err", err)
				}
			}
		}
		h.i.mu.Unlock()
	}
}

// rerouted drops the way to a peer if that is stale and no request is under way.
func (h *hardware) rerouted(p *Peer) error {
	if p.a == nil || p.a.hard == nil {
		return nil
	}
	x := p.a.hard
	r := x.route
	if r == nil || !r.stale.Load() || x.m.Outstanding()+x.m.Pending() > 0 {
		return nil
	}
	x.route, x.to.AH = nil, nil
	return h.routes.put(r)
}

func (h *hardware) addDCI(streams, errored int) error {
	c := &h.i.cfg
	cfg := verbs.QPConfig{Type: verbs.DCI, SendCQ: h.i.d.CQ(), GID: h.routes.gid.entry(), MaxSendWR: c.Depth, MaxSendSGE: c.MaxSGE, MaxInline: c.MaxInline,
		Streams: streams, ErroredStreams: errored, Ops: c.ops()}
	qp, err := c.PD.CreateQP(cfg)
	if err != nil {
		return err
	}
	h.dcis = append(h.dcis, dciQueue{qp: qp, ring: newRing(c.Depth)})
	q := &h.dcis[len(h.dcis)-1]
	if q.batch, err = h.i.d.NewBatch(qp, c.Depth); err != nil {
		return err
	}
	driver.KeepsOpen(q.batch) // it posts with the lock: DCIs close later, and address handles with it
	return driver.ActivateWith(qp, h.connect())
}

// connect returns the timers of a DCI.
func (h *hardware) connect() verbs.ConnectConfig {
	return verbs.ConnectConfig{MTU: h.mtu, AckTimeout: h.i.cfg.AckTimeout, Retries: 6}
}

// dcKey returns the key of a DCT for its access key. It takes part of the address, so
// that a request for an earlier target of the same number is refused.
func dcKey(accessKey, generation uint64) uint64 { return accessKey ^ generation }

func (h *hardware) resolve(p *Peer) error {
	switch a := &p.addr; {
	case !a.Hardware:
		return errors.Join(verbs.ErrUnsupported, errors.New("a target of the software back end needs an initiator of that back end"))
	case a.MTU != h.mtu:
		return fmt.Errorf("%w: the target's MTU is %d bytes, this end's %d", verbs.ErrAttributes, a.MTU.Bytes(), h.mtu.Bytes())
	}
	return nil
}

func (h *hardware) meet(p *Peer) *hardPeer {
	a := p.active()
	if a.hard == nil {
		a.hard = &hardPeer{owner: p, to: verbs.Target{QPN: p.addr.QPN, DCKey: dcKey(p.key, p.addr.Generation)}}
		a.hard.m.Owner = a.hard
	}
	return a.hard
}

func (h *hardware) attach(_ context.Context, p *Peer) error {
	h.i.mu.Lock()
	defer h.i.mu.Unlock()
	if err := h.i.mine(p); err != nil {
		return err
	}
	return h.ready(p)
}

// ready finds the way to a peer. mu must be held, and is released for a while.
func (h *hardware) ready(p *Peer) error {
	x := h.meet(p)
	if err := h.rerouted(p); err != nil {
		return err
	}
	if x.route != nil {
		return h.placed(x)
	}
	h.i.mu.Unlock()
	r, err := h.routes.get(p.addr)
	h.i.mu.Lock()
	switch {
	case err != nil:
		return err
	case h.i.mine(p) != nil:
		return errors.Join(h.i.mine(p), h.routes.put(r))
	}
	if x = h.meet(p); x.route != nil { // another goroutine was faster
		if err := h.routes.put(r); err != nil {
			return err
		}
	} else {
		x.route, x.to.AH = r, r.ah
	}
	return h.placed(x)
}

// placed returns an error for a peer that no DCI can serve any more.
func (h *hardware) placed(x *hardPeer) error {
	if x.m.DCI() == nil && !h.core.Usable() {
		return h.core.Lost()
	}
	return nil
}

func (h *hardware) leave(p *Peer, forever bool) error {
	if p.a == nil || p.a.hard == nil {
		return nil
	}
	x := p.a.hard
	if n := x.m.Outstanding() + x.m.Pending(); n > 0 {
		return fmt.Errorf("%w: %d requests are under way", ErrInUse, n)
	}
	if !forever {
		return nil
	}
	p.a.hard = nil
	if x.route == nil {
		return nil
	}
	return h.routes.put(x.route)
}

func (h *hardware) stats(s *Stats) {
	c := h.core.Stats
	*s = Stats{Attaches: c.Attaches, Hits: h.hits, Waits: c.Waits, Failures: c.Failures, Live: h.core.Live()}
}

func (h *hardware) peerStats(p *Peer, s *PeerStats) {
	if x := p.a.hard; x != nil {
		s.Attaches, s.Attached = x.m.Attaches, x.m.DCI() != nil
	}
}

func (h *hardware) queuePairs() int { return len(h.dcis) }

func (h *hardware) stop() { h.acting.Wait() }

func (h *hardware) halt() {
	var qps []*verbs.QP
	for k := range h.dcis {
		qps = append(qps, h.dcis[k].qp)
	}
	h.i.resetAll(qps)
}

func (h *hardware) close() error {
	var errs []error
	for _, q := range h.dcis {
		errs = append(errs, q.qp.Close())
	}
	return errors.Join(append(errs, h.routes.close())...)
}
