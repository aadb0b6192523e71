package cache

import (
	"context"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goverbs/goverbs/verbs"
)

// Buffers are registered memory that READs go to, in slabs. A slab is registered when no buffer of its size is
// free, and freed when no READ has used it for trimEvery, or to make room for another one. A slab of each size up
// to shortBytes is kept: 1 MiB in all. Calls that need more than shortBytes take turns: together they have longBytes,
// or one record that is longer.
const (
	pageBytes  = 4 << 10
	shortBytes = 64 << 10
	longBytes  = 16 << 20
	trimEvery  = time.Second

	shortClasses = shortBytes / pageBytes
	classes      = 8 * 20 // more than 2 GiB
)

// throughSlab is how much memory for READs is registered at least: less than elsewhere, since there may
// be many servers.
const throughSlab = 16 << 10

// slab is one registration, cut into buffers of one class.
type slab struct {
	mr    *verbs.MR
	used  int  // buffers; -1: it is being freed
	fresh bool // one was used since the last trim
}

type buffer struct {
	*slab
	off   int
	class int
	turn  int64 // bytes of the turn of long ones
	next  *buffer
}

func (b *buffer) bytes(n int) []byte { return b.mr.Bytes()[b.off : b.off+n] }

// buffers are those of a session. The session's mu guards them.
type buffers struct {
	free       [classes]*buffer
	every      map[*slab]bool
	slabs      [classes]int        // how many
	registered int                 // bytes of these
	turn       *semaphore.Weighted // bytes of long buffers that may be in use
	trim       *time.Timer         // nil: there is nothing to be trimmed
	trims      sync.WaitGroup
}

// classOf returns the class for n bytes. Classes grow by a page, and from 64 KiB on by an eighth at most.
func classOf(n int) int {
	q := (max(n, 1) - 1) / pageBytes
	e := max(bits.Len(uint(q)), 4) - 4
	return 8*e + q>>e
}

// sizeOf returns how many bytes the buffers of a class have.
func sizeOf(class int) int {
	e := max(class/8-1, 0)
	return (class - 8*e + 1) << e * pageBytes
}

// buffer returns a buffer of n bytes at least; a long one when it is its turn. mu must be held; it is released
// during that, and while memory is registered.
func (s *session) buffer(ctx context.Context, n int) (*buffer, error) {
	class, turn := classOf(n), int64(0)
	if n > shortBytes {
		if turn = turnOf(class); !s.turn.TryAcquire(turn) {
			s.mu.Unlock()
			err := s.turn.Acquire(ctx, turn)
			if s.mu.Lock(); err != nil {
				return nil, err
			}
		}
	}
	return s.take(class, turn)
}

// bufferNow returns another buffer for a call that has some, or nil if the call would have to wait for it. mu
// must be held; it is released while memory is registered.
func (s *session) bufferNow(n int, long bool) (*buffer, error) {
	class, turn := classOf(n), int64(0)
	if long {
		if turn = turnOf(class); !s.turn.TryAcquire(turn) {
			return nil, nil
		}
	}
	return s.take(class, turn)
}

func turnOf(class int) int64 { return int64(min(sizeOf(class), longBytes)) }

// take returns a buffer that has its turn. mu must be held; it is released while memory is registered.
func (s *session) take(class int, turn int64) (*buffer, error) {
	b := s.free[class]
	if b == nil {
		var err error
		if b, err = s.register(class); err != nil {
			s.turn.Release(turn)
			return nil, err
		}
	} else {
		s.free[class], b.next = b.next, nil
	}
	b.used++
	b.fresh, b.turn = true, turn
	return b, nil
}

// release keeps a buffer for later READs. mu must be held.
func (s *session) release(b *buffer) {
	if b.turn > 0 {
		s.turn.Release(b.turn)
	}
	b.used--
	b.next, s.free[b.class] = s.free[b.class], b
}

// register registers a slab, and returns its first buffer. Slabs that are not in use make room for it. mu must be
// held; it is released meanwhile.
func (s *session) register(class int) (*buffer, error) {
	size := sizeOf(class)
	n := size * max(s.minSlab()/size, 1)
	s.count(class, n, 1)
	idle := s.detach(func(class int, _ *slab) bool { return s.registered > longBytes && s.surplus(class) })
	s.mu.Unlock()
	s.deregister(idle)
	mr, err := s.pd().AllocMR(n, verbs.MRConfig{})
	s.mu.Lock()
	if err != nil {
		s.count(class, n, -1)
		return nil, err
	}
	l := &slab{mr: mr}
	s.every[l] = true
	for off := size; off < n; off += size {
		s.free[class] = &buffer{slab: l, off: off, class: class, next: s.free[class]}
	}
	s.trimLater()
	return &buffer{slab: l, class: class}, nil
}

// minSlab returns how many bytes are registered for short buffers.
func (s *session) minSlab() int {
	if s.through != nil {
		return throughSlab
	}
	return shortBytes
}

// count counts slabs of n bytes. mu must be held.
func (s *session) count(class, n, slabs int) {
	s.slabs[class] += slabs
	s.registered += slabs * n
}

// surplus reports whether a slab of a class is not kept for ever. mu must be held.
func (s *session) surplus(class int) bool {
	return s.slabs[class] > 1 || s.slabs[class] == 1 && class >= shortClasses
}

// detach takes away, and returns, the slabs that are not in use and for which is returns true. mu must be held.
func (s *session) detach(is func(class int, l *slab) bool) (out []*slab) {
	for class := range s.free {
		gone := len(out)
		for b := s.free[class]; b != nil; b = b.next {
			if b.off == 0 && b.used == 0 && is(class, b.slab) { // once for each slab
				s.count(class, b.mr.Len(), -1)
				b.used = -1
				delete(s.every, b.slab)
				out = append(out, b.slab)
			}
		}
		if len(out) == gone {
			continue
		}
		left := &s.free[class]
		for b := *left; b != nil; b = b.next {
			if b.used >= 0 {
				*left, left = b, &b.next
			}
		}
		*left = nil
	}
	return out
}

// deregister frees slabs that were detached. mu must not be held.
func (s *session) deregister(all []*slab) {
	for _, l := range all {
		if err := l.mr.Close(); err != nil {
			s.c.cfg.Logger.Error("cache: free memory of READs", "server", s.c.address, "error", err)
		}
	}
}

// trimLater trims after trimEvery, if there may be something to trim by then. mu must be held.
func (s *session) trimLater() {
	if s.trim != nil || s.ended.Load() {
		return
	}
	for class := range s.slabs {
		if s.surplus(class) {
			s.trim = time.AfterFunc(trimEvery, s.trimNow)
			return
		}
	}
}

// trimNow frees the slabs that were not used since the last time.
func (s *session) trimNow() {
	s.mu.Lock()
	if s.ended.Load() { // all is freed soon
		s.mu.Unlock()
		return
	}
	idle := s.detach(func(class int, l *slab) bool {
		unused := !l.fresh && s.surplus(class)
		l.fresh = false
		return unused
	})
	s.trim = nil
	s.trimLater()
	s.trims.Add(1)
	s.mu.Unlock()
	s.deregister(idle)
	s.trims.Done()
}

// closeBuffers frees all buffers, when the session has ended and no READ is under way. A READ that has
// just ended may still release its buffer.
func (s *session) closeBuffers() {
	s.trims.Wait()
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.every))
	s.mu.Unlock()
	s.deregister(all)
}

// pd returns the protection domain of the memory that READs go to.
func (s *session) pd() *verbs.PD {
	if s.through != nil {
		return s.through.i.PD()
	}
	return s.link.PD()
}
