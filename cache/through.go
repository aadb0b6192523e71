package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// blockedFor is how long a target is not used after a READ through it has failed.
const blockedFor = time.Second

// throughWait is how long a READ waits for its target to attach, before the server is asked. Meanwhile this
// client says nothing of how far it is, so that must be well below half of a lease.
const throughWait = time.Second

// throughQueue is what stands for a send queue's length, half of which is for parts of long values.
const throughQueue = 64

// firstWait is how long the first READ through a target may take: a client that cannot READ there goes another way.
const firstWait = 3 * time.Second

// silentFor is how long READs through a target fail, and none succeeds, until the client connects anew.
const silentFor = 10 * time.Second

// parting is how long saying goodbye may take.
const parting = 100 * time.Millisecond

// through is what a session without a queue pair of its own READs by: the initiator, and the server's
// target, which the server names, and may replace.
type through struct {
	s      *session
	i      *dc.Initiator
	conn   *link.Stream // to the server; nil before there is one
	number uint64       // of the newest target; used by the goroutine that receives
	now    atomic.Pointer[way]

	mu  sync.Mutex
	old []*dc.Peer // targets that are closed, and may have READs under way
}

// way is a target. Times are in ns since 1970.
type way struct {
	peer    *dc.Peer
	key     uint64
	blocked atomic.Int64 // until then
	silent  atomic.Int64 // since then all READs have failed; 0: the last one has not
}

// open reports whether there may be a READ.
func (w *way) open(now int64) bool {
	until := w.blocked.Load()
	return until == 0 || now >= until
}

// A READ has succeeded: the target is not silent.
func (w *way) replied() {
	if w.silent.Load() != 0 {
		w.silent.Store(0)
	}
}

// failed blocks the target for a while after a READ that has failed, and reports whether all READs have failed
// for too long.
func (w *way) failed(now int64) (tooLong bool) {
	w.blocked.Store(now + int64(blockedFor))
	return !w.silent.CompareAndSwap(0, now) && now-w.silent.Load() >= int64(silentFor)
}

var errBlocked = errors.New("no READ through the target just now")

// dialThrough connects by TCP to a server, for READs through its target.
func (s *session) dialThrough(ctx context.Context) error {
	i := s.c.cfg.DC
	if err := s.c.checkPacer(i.PD().Device()); err != nil {
		return err
	}
	s.through = &through{s: s, i: i}
	return s.dialTCP(ctx)
}

// attach begins a session with a server that has admitted this client, after a first READ: see tryTarget.
func (s *session) attach(ctx context.Context, conn net.Conn) error {
	h := s.through
	h.conn = link.NewPartingStream(s.live, conn, 0)
	s.conn = h.conn
	if err := s.meetTarget(ctx); err != nil {
		return err
	}
	s.run() // the server is not to wait for the READ
	return s.tryTarget(ctx)
}

// meetTarget receives the server's first message, which names its target.
func (s *session) meetTarget(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.stop)() // which ends what the connection is asked for
	b, err := s.conn.Next(ctx)
	if err != nil {
		return err
	}
	t, err := s.readTarget(b)
	switch {
	case errors.Is(err, ErrDenied):
		s.greeted = false // nor is there another way
		return err
	case err != nil:
		return err
	case t.Number == 0:
		return errNoTarget
	case len(t.Regions) == 0, len(t.Regions)%verbs.RegionSize != 0:
		return wire.Malformed
	}
	for r := t.Regions; len(r) > 0; r = r[verbs.RegionSize:] {
		var region verbs.Region
		if err := region.UnmarshalBinary(r[:verbs.RegionSize]); err != nil {
			return err
		}
		s.regions = append(s.regions, region)
	}
	return s.toldTarget(b)
}

// tryTarget READs something through the target, unless the server has none just now.
func (s *session) tryTarget(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	const n = 8 // bytes
	sec, ok := s.enter()
	if !ok {
		return errEnded
	}
	b, err := s.buffer(ctx, n)
	if err != nil {
		s.leave(sec)
		return err
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.releaseAfter(err, b)
		s.leaveAfter(err, sec)
	}()
	h := s.through
	for w := h.now.Load(); w != nil; {
		err = h.i.Do(ctx, w.peer, dc.Request{Op: dc.Read, Remote: s.regions[0].At(0), Local: b.mr.SGE(b.off, n)})
		if err == nil {
			return nil
		}
		before := w
		if w = h.now.Load(); w == before || ctx.Err() != nil { // otherwise there is another one, or none any more
			return fmt.Errorf("READ through the server's target: %w", err)
		}
	}
	return nil
}

// readTarget decodes what the server says of a target, and checks its seal.
func (s *session) readTarget(b []byte) (wire.Target, error) {
	t, err := wire.ReadTarget(b)
	if err != nil {
		return t, fmt.Errorf("message of the server: %w", err)
	}
	if err := s.seal.Check(t.Said(), t.Seal); err != nil {
		return t, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return t, nil
}

// toldTarget switches to another target.
func (s *session) toldTarget(b []byte) error {
	h := s.through
	if h == nil {
		return wire.Malformed
	}
	t, err := s.readTarget(b)
	if err != nil || t.Number <= h.number {
		return err
	}
	h.number = t.Number
	var next *way
	if len(t.Address) > 0 {
		var at dc.Address
		if err := at.UnmarshalBinary(t.Address); err != nil {
			return err
		}
		p, err := h.i.Resolve(at, t.Key)
		if err != nil {
			return fmt.Errorf("the server's target: %w", err)
		}
		next = &way{peer: p, key: t.Key}
	}
	if before := h.now.Swap(next); before != nil {
		h.forget(before.peer)
	}
	return nil
}

// forget gives up a target, and those before it, unless a READ is under way there: then the next call does.
func (h *through) forget(p *dc.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p != nil {
		h.old = append(h.old, p)
	}
	left := h.old[:0]
	for _, p := range h.old {
		if err := h.i.Forget(p); errors.Is(err, dc.ErrInUse) {
			left = append(left, p)
		}
	}
	clear(h.old[len(left):])
	h.old = left
}

// closeThrough waits until no READ is under way, says so to the server, and frees everything.
func (s *session) closeThrough() error {
	h := s.through
	s.running.Wait()
	<-s.idle
	var last *dc.Peer
	if w := h.now.Swap(nil); w != nil {
		last = w.peer
	}
	h.forget(last) // one that is in use is another client's, too
	if h.conn != nil {
		s.mu.Lock()
		bye := wire.AppendBye(nil, s.m.Epoch())
		s.mu.Unlock()
		_ = h.conn.Part(bye, parting) // if it does not arrive this client is as one that was killed
	}
	s.closeBuffers()
	return nil
}

func readRequest(from verbs.Remote, to verbs.SGE) dc.Request {
	return dc.Request{Op: dc.Read, Remote: from, Local: to, Timeout: throughWait}
}

// open returns the target to READ through, unless it is blocked.
func (h *through) open() (*way, error) {
	w := h.now.Load()
	if w == nil || w.blocked.Load() != 0 && !w.open(time.Now().UnixNano()) {
		return nil, errBlocked
	}
	return w, nil
}

// over processes the end of READs through a target, which a failure blocks for a while. A target that
// another client of the initiator has forgotten is resolved again. If the initiator is of no use any more, or
// the target has not responded for long, the session ends: the next one may have to do without. READs that
// are under way after the context's end count when they are over.
func (h *through) over(ctx context.Context, w *way, err error) error {
	if err == nil {
		w.replied()
		return nil
	}
	if ctx.Err() != nil {
		for _, e := range inFlight(err) {
			go func() {
				<-e.Done()
				_ = h.over(context.WithoutCancel(ctx), w, e.Err())
			}()
		}
		return err
	}
	p, refused := h.i.Resolve(w.peer.Address(), w.key)
	switch {
	case refused != nil:
		h.s.end(refused)
	case p != w.peer:
		if n := (&way{peer: p, key: w.key}); !h.now.CompareAndSwap(w, n) {
			if now := h.now.Load(); now == nil || now.peer != p {
				h.forget(p)
			}
		}
	case w.failed(time.Now().UnixNano()):
		h.s.end(fmt.Errorf("no READ through the server's target within %v: %w", silentFor, err))
	}
	return err
}

// passage are READs that were begun through a target.
type passage struct {
	h     *through
	w     *way
	reads dc.Pending
}

func (p *passage) used() bool { return p.h != nil }

func (p *passage) wait(ctx context.Context) error { return p.h.over(ctx, p.w, p.reads.Wait(ctx)) }

// start begins READs together. The requests belong to the caller when it returns.
func (h *through) start(all []dc.Request) (passage, error) {
	w, err := h.open()
	if err != nil {
		return passage{}, err
	}
	reads, err := h.i.Start(w.peer, all)
	if err != nil {
		return passage{}, h.over(context.Background(), w, err)
	}
	return passage{h, w, reads}, nil
}

// do executes READs together.
func (h *through) do(ctx context.Context, all []dc.Request) error {
	p, err := h.start(all)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// notThrough returns the cause of failed READs through a target: the context's error, errEnded, or nil if the
// server is to be asked.
func (s *session) notThrough(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.ended.Load():
		return errEnded
	}
	s.c.count.blocked.Add(1)
	return nil
}

// sendQueue returns how many READs may be posted.
func (s *session) sendQueue() int {
	if s.through != nil {
		return throughQueue
	}
	return s.reads.QP().MaxSendWR()
}
