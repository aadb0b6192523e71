package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// blockedFor is how long a target is let be through which a READ has failed.
const blockedFor = time.Second

// throughWait is how long a READ waits until its target is attached: then the server is asked. Meanwhile
// this client says nothing of how far it is, so that is to be well below half of a lease.
const throughWait = time.Second

// throughSlab is how much memory for READs is registered at least: less than elsewhere, since there may
// be many servers.
const throughSlab = 16 << 10

// throughQueue is how many parts of long values sessions have under way half of at most.
const throughQueue = 64

// through is what a session READs by that has no queue pair of its own: the initiator, and the server's
// target, of which the server tells, also when there is another one.
type through struct {
	c      *Client
	i      *dc.Initiator
	local  net.Addr // of the connection
	number uint64   // of the newest target; who receives has it
	now    atomic.Pointer[way]
	rooms  sync.Pool // of *[]dc.Request

	mu  sync.Mutex
	mrs []*verbs.MR // that READs go to
	old []*dc.Peer  // targets that are closed, and may have READs under way
}

// way is a target.
type way struct {
	peer    *dc.Peer
	key     uint64
	blocked atomic.Int64 // until then, in ns since 1970
}

var errBlocked = errors.New("no READ through the target just now")

// dialThrough connects by TCP to a server through whose target this session READs.
func (s *session) dialThrough(ctx context.Context) error {
	i := s.c.cfg.DC
	if err := s.c.checkPacer(i.PD().Device()); err != nil {
		return err
	}
	s.through = &through{c: s.c, i: i}
	return s.dialTCP(ctx)
}

// meetTarget takes the server's first message: of its target.
func (s *session) meetTarget(ctx context.Context, conn net.Conn) error {
	s.through.local = conn.LocalAddr()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(waiting, s.stop)() // which closes the connection
	b, err := s.conn.Next(waiting)
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
	case len(t.Regions)%verbs.RegionSize != 0:
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

// readTarget is what the server says of a target. Nobody is believed but who has greeted.
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

// toldTarget goes over to another target.
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
			s.c.cfg.Logger.Warn("cache: the server's target cannot be READ through", "server", s.c.address, "error", err)
		} else {
			next = &way{peer: p, key: t.Key}
		}
	}
	if before := h.now.Swap(next); before != nil {
		h.forget(before.peer)
	}
	return nil
}

// forget gives up a target, and those before it, as soon as no READ is under way there.
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

// register makes memory that READs go to.
func (h *through) register(n int) (*verbs.MR, error) {
	mr, err := h.i.PD().AllocMR(n, verbs.MRConfig{})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mrs = append(h.mrs, mr)
	return mr, nil
}

// closeThrough frees everything, when no READ is under way any more.
func (s *session) closeThrough() error {
	h := s.through
	err := s.closePlaces()
	s.running.Wait()
	<-s.idle
	var last *dc.Peer
	if w := h.now.Swap(nil); w != nil {
		last = w.peer
	}
	h.forget(last) // one that is in use is another client's, too
	for _, mr := range h.mrs {
		err = errors.Join(err, mr.Close())
	}
	return err
}

func readRequest(from verbs.Remote, to verbs.SGE) dc.Request {
	return dc.Request{Op: dc.Read, Remote: from, Local: to, Timeout: throughWait}
}

// readOne READs one thing.
func (s *session) readOne(ctx context.Context, from verbs.Remote, to verbs.SGE) error {
	h := s.through
	if h == nil {
		return s.read.Read(ctx, from, to)
	}
	w, err := h.open()
	if err != nil {
		return err
	}
	return h.over(ctx, w, h.i.Do(ctx, w.peer, readRequest(from, to)))
}

// open is the target to READ through, unless it is blocked.
func (h *through) open() (*way, error) {
	w := h.now.Load()
	if w == nil {
		return nil, errBlocked
	}
	if until := w.blocked.Load(); until != 0 && time.Now().UnixNano() < until {
		return nil, errBlocked
	}
	return w, nil
}

// over takes the end of READs through a target: after one that has failed it is blocked for a while. One
// that another client has forgotten, which shares the initiator, is resolved again.
func (h *through) over(ctx context.Context, w *way, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, dc.ErrClosed) {
		if p, rerr := h.i.Resolve(w.peer.Address(), w.key); rerr == nil {
			h.now.CompareAndSwap(w, &way{peer: p, key: w.key})
			return err
		}
	}
	w.blocked.Store(time.Now().Add(blockedFor).UnixNano())
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

// start begins READs together.
func (h *through) start(add func([]dc.Request) []dc.Request) (passage, error) {
	w, err := h.open()
	if err != nil {
		return passage{}, err
	}
	room, _ := h.rooms.Get().(*[]dc.Request)
	if room == nil {
		room = new([]dc.Request)
	}
	*room = add((*room)[:0])
	reads, err := h.i.Start(w.peer, *room)
	h.rooms.Put(room)
	if err != nil {
		return passage{}, h.over(context.Background(), w, err)
	}
	return passage{h, w, reads}, nil
}

// do READs together.
func (h *through) do(ctx context.Context, add func([]dc.Request) []dc.Request) error {
	p, err := h.start(add)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// notThrough is what the error of READs through a target means: of the caller's context, or the end of
// the session, or nil: the server is to be asked.
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

// pd is the protection domain of what READs go to.
func (s *session) pd() *verbs.PD {
	if s.through != nil {
		return s.through.i.PD()
	}
	return s.link.PD()
}

// sendQueue is how many READs may be posted.
func (s *session) sendQueue() int {
	if s.through != nil {
		return throughQueue
	}
	return s.reads.QP().MaxSendWR()
}

// gid is the address of this side.
func (s *session) gid() (verbs.GIDEntry, error) {
	if s.through == nil {
		return s.link.QP().GID(), nil
	}
	at, ok := s.through.local.(*net.TCPAddr)
	if !ok {
		return verbs.GIDEntry{}, verbs.ErrUnsupported
	}
	return s.pd().Device().FindGID(verbs.GIDQuery{Addr: at.AddrPort().Addr().Unmap()})
}
