package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// spins is how often an empty queue is polled in one crossing into C.
const spins = 200

// oneCPU: a peer that shares the only CPU with this process gets its turn only
// if this process gives up its own. perftest does not, and then measures the
// scheduler's time slices instead of the network.
var oneCPU = runtime.NumCPU() == 1

func (o *options) giveUp() {
	if oneCPU && o.yield {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// measure runs the test of this session. The server's result means nothing.
func (s *session) measure(ctx context.Context) (*result, error) {
	r := newResult(s.p, s.o.device)
	l := s.qps[0]
	w := &waiter{ctx: ctx, s: s}
	var err error
	switch test, _, _ := strings.Cut(s.p.Test, "_"); {
	case strings.HasSuffix(s.p.Test, "_bw"):
		return r, s.bandwidth(ctx, r)
	case test == "read" || test == "atomic":
		if s.client {
			err = s.oneSided(w, l, r)
		}
	case test == "write" && s.p.Passive:
		if s.client {
			err = s.oneSided(w, l, r)
		}
	case test == "write":
		err = s.writePingPong(ctx, w, l, r)
	default:
		err = s.sendPingPong(w, l, r)
	}
	return r, err
}

// turns counts iterations, or the time.
type turns struct {
	rest  verbs.Rest
	p     params
	i     int       // from -Warmup on
	start time.Time // of the first turn; times below are since then
	ends  time.Duration
}

func (s *session) turns() turns { return turns{p: s.p, i: -s.p.Warmup, start: time.Now()} }

// now is the time since the first turn: half the price of time.Now, which asks
// for the time of day too.
func (t *turns) now() time.Duration { return time.Since(t.start) }

// measured tells whether turn i counts.
func (t *turns) measured() bool { return t.i >= 0 }

// next tells whether there is another turn. A duration is for one-sided tests;
// ping-pong stops at a count that both sides know.
func (t *turns) next(now time.Duration) bool {
	t.rest.At(now)
	if t.i == 0 {
		t.ends = now + t.p.Duration
	}
	if t.p.Duration > 0 && t.i >= 0 {
		return now < t.ends
	}
	return t.i < t.p.Iterations
}

// oneSided times operations one after the other, from posting to completion;
// the peer's CPU has no part in them.
func (s *session) oneSided(w *waiter, l *link, r *result) error {
	local, at := l.mr.SGE(0, s.p.Size), l.remote.At(0)
	t := s.turns()
	prev := t.now()
	for t.next(prev) {
		id := uint64(t.i)
		switch {
		case s.p.Test == "read_lat":
			l.batch.Read(id, verbs.Signaled, at, local)
		case s.p.Test == "write_lat":
			l.batch.Write(id, verbs.Signaled, at, local)
		case s.p.Atomic == "FETCH_AND_ADD":
			l.batch.FetchAdd(id, verbs.Signaled, at, 1, local)
		default:
			l.batch.CmpSwap(id, verbs.Signaled, at, 0, 1, local)
		}
		if err := w.do(l.batch); err != nil {
			return err
		}
		now := t.now()
		if t.measured() {
			r.add(now - prev)
			s.progress(r)
		}
		prev = now
		t.i++
	}
	return nil
}

// writePingPong: each side waits for the peer's WRITE by looking at the last
// byte of its memory, then WRITEs itself.
func (s *session) writePingPong(ctx context.Context, w *waiter, l *link, r *result) error {
	if s.p.Duration > 0 {
		return fmt.Errorf("%s counts iterations: no -D", s.p.Test)
	}
	slot, last := s.slot(), s.p.Size-1
	local, to := l.mr.SGE(0, s.p.Size), l.remote.At(uint64(slot))
	mine := l.mr.Bytes()
	inline := s.p.Size <= l.qp.MaxInline() && s.o.inline > 0
	flags := verbs.Signaled
	if inline {
		flags |= verbs.Inline
	}
	t := s.turns()
	prev := t.now()
	for seq := byte(1); t.next(prev); seq++ {
		if !s.client {
			if err := s.watchByte(ctx, l.mr, slot+last, seq); err != nil {
				return err
			}
		}
		mine[last] = seq
		l.batch.Write(uint64(t.i), flags, to, local)
		if err := w.do(l.batch); err != nil {
			return err
		}
		if s.client {
			if err := s.watchByte(ctx, l.mr, slot+last, seq); err != nil {
				return err
			}
		}
		now := t.now()
		if t.measured() {
			r.add((now - prev) / 2)
			s.progress(r)
		}
		prev = now
		t.i++
	}
	return nil
}

// watchByte waits until the byte at offset off of the region has that value.
// The word around it is loaded atomically: the compiler must not keep it, and
// the device writes it behind our back.
func (s *session) watchByte(ctx context.Context, mr *verbs.MR, off int, want byte) error {
	var b [8]byte
	for n := 0; ; n++ {
		v, err := mr.Load64(off &^ 7)
		if err != nil {
			return err
		}
		binary.NativeEndian.PutUint64(b[:], v)
		if b[off&7] == want {
			return nil
		}
		if oneCPU || n%4096 == 4095 {
			s.o.giveUp()
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
}

// sendPingPong: each side waits for the peer's SEND, then SENDs itself. Sends
// and receives complete in one queue, and only one send of several asks for a
// completion, so that posting a send and waiting for the answer is mostly one
// crossing into C.
func (s *session) sendPingPong(w *waiter, l *link, r *result) error {
	if s.p.Duration > 0 {
		return fmt.Errorf("%s counts iterations: no -D", s.p.Test)
	}
	local := l.mr.SGE(0, s.p.Size)
	var inline verbs.SendFlags
	if s.o.inline > 0 && s.p.Size <= l.qp.MaxInline() {
		inline = verbs.Inline
	}
	moderation := l.qp.MaxSendWR() / 2
	var sent, done, received, posted int // requests
	// take counts n completions in w.wcs.
	take := func(n int) error {
		for i := range w.wcs[:n] {
			wc := &w.wcs[i]
			if err := wc.Err(); err != nil {
				return err
			}
			if wc.Opcode() == verbs.WCRecv {
				received++
			} else {
				done += moderation
			}
		}
		if received-posted == s.depth()/2 {
			posted = received
			return s.postReceives(l, s.depth()/2)
		}
		return nil
	}
	receive := func(turn int) error {
		for received <= turn || sent-done > moderation {
			n, err := w.some(s.cq)
			if err != nil {
				return err
			}
			if err := take(n); err != nil {
				return err
			}
		}
		return nil
	}
	send := func(id uint64) error {
		sent++
		flags := inline
		if sent%moderation == 0 {
			flags |= verbs.Signaled
		}
		if s.p.Transport == "UD" {
			l.batch.SendTo(id, flags, l.to, local)
		} else {
			l.batch.Send(id, flags, local)
		}
		if s.p.Events {
			_, err := l.batch.Post()
			return err
		}
		_, n, err := l.batch.PostPoll(s.cq, w.wcs[:], w.spins())
		if err != nil {
			return err
		}
		return take(n)
	}
	t := s.turns()
	prev := t.now()
	for turn := 0; t.next(prev); turn++ {
		if !s.client {
			if err := receive(turn); err != nil {
				return err
			}
		}
		if err := send(uint64(turn)); err != nil {
			return err
		}
		if s.client {
			if err := receive(turn); err != nil {
				return err
			}
		}
		now := t.now()
		if t.measured() {
			r.add((now - prev) / 2)
			s.progress(r)
		}
		prev = now
		t.i++
	}
	return nil
}

// waiter waits for completions, by polling or by events.
type waiter struct {
	ctx context.Context
	s   *session
	wcs [2]verbs.WC
}

// do posts a batch of one signaled request and waits until it has completed.
func (w *waiter) do(b *verbs.Batch) error {
	n, err := 0, error(nil)
	if w.s.p.Events {
		_, err = b.Post()
	} else {
		_, n, err = b.PostPoll(w.s.cq, w.wcs[:1], w.spins())
	}
	if n == 0 && err == nil {
		_, err = w.some(w.s.cq)
	}
	if err != nil {
		return err
	}
	return w.wcs[0].Err()
}

func (w *waiter) spins() int { return w.s.o.spins() }

// spins: alone on a CPU nothing changes while we spin.
func (o *options) spins() int {
	if oneCPU && o.yield {
		return 0
	}
	return spins
}

// some waits for one or more completions.
func (w *waiter) some(cq *verbs.CQ) (int, error) {
	if w.s.p.Events {
		return cq.Wait(w.ctx, w.wcs[:])
	}
	for n := 0; ; n++ {
		got, err := cq.PollSpin(w.wcs[:], w.spins())
		if err != nil || got > 0 {
			return got, err
		}
		w.s.o.giveUp()
		if n%256 == 255 {
			if err := w.ctx.Err(); err != nil {
				return 0, err
			}
		}
	}
}
