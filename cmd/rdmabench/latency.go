package main

import (
	"context"
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/verbs"
)

// latencyLoop takes turns until sp ends and records how long each took. It may
// be called again, and then goes on where it was.
type latencyLoop func(ctx context.Context, sp span, rec *recorder) error

func newLatency(s *session) (latencyLoop, error) {
	l := s.links[0]
	batch, err := l.qp.NewBatch(1)
	if err != nil {
		return nil, err
	}
	local, flags := l.mr.SGE(0, s.p.Size), verbs.Signaled|s.flags(l)
	switch {
	case s.p.Test == "write_lat" && s.p.pingPong():
		return newWritePingPong(s, l, batch, local, flags).run, nil
	case s.p.Test == "send_lat":
		t := &sendPingPong{l: l, q: s.queue(s.recvCQ), sends: s.queue(s.cq), batch: batch, local: local, flags: flags}
		if !s.client {
			t.ahead = 1
		}
		return t.run, nil
	}
	t := &oneSided{q: s.queue(s.cq), batch: batch, flags: flags, local: local, at: l.remote.At(uint64(s.area()))}
	switch {
	case s.p.Test == "read_lat":
		t.op = verbs.WCRead
	case s.p.Test == "write_lat":
		t.op = verbs.WCWrite
	case s.o.atomic == "CMP_AND_SWAP":
		t.op = verbs.WCCmpSwap
	default:
		t.op = verbs.WCFetchAdd
	}
	return t.run, nil
}

// oneSided times READs, WRITEs and atomics one after the other, from post to
// completion; the peer's CPU has no part in them.
type oneSided struct {
	q     queue
	batch *verbs.Batch
	op    verbs.WCOpcode
	flags verbs.SendFlags
	local verbs.SGE
	at    verbs.Remote
	wcs   [1]verbs.WC
}

func (t *oneSided) run(ctx context.Context, sp span, rec *recorder) error {
	prev := rec.begin()
	for turn := 0; sp.more(turn, prev); turn++ {
		switch t.op {
		case verbs.WCRead:
			t.batch.Read(0, t.flags, t.at, t.local)
		case verbs.WCWrite:
			t.batch.Write(0, t.flags, t.at, t.local)
		case verbs.WCFetchAdd:
			t.batch.FetchAdd(0, t.flags, t.at, 1, t.local)
		default:
			t.batch.CmpSwap(0, t.flags, t.at, 0, 1, t.local)
		}
		n, err := t.q.post(t.batch, t.wcs[:], t.q.spins())
		if n == 0 && err == nil {
			_, err = t.q.take(ctx, t.wcs[:])
		}
		if err == nil {
			err = t.wcs[0].Err()
		}
		if err != nil {
			return err
		}
		if prev, err = rec.turn(ctx, prev); err != nil {
			return err
		}
	}
	return nil
}

// sendPingPong: each side waits for the peer's SEND, then SENDs itself. Posting
// and waiting for the reply is one crossing into C.
type sendPingPong struct {
	l        *link
	q, sends queue // receives, sends
	batch    *verbs.Batch
	local    verbs.SGE
	flags    verbs.SendFlags
	ahead    int // 1: the peer begins
	wcs      [8]verbs.WC
	sendWCs  [pingPongDepth]verbs.WC

	sent, collected, received int
}

// collectAfter is how many sends are posted between two looks for their
// completions.
const collectAfter = pingPongDepth / 2

func (t *sendPingPong) run(ctx context.Context, sp span, rec *recorder) error {
	if err := t.await(ctx); err != nil {
		return err
	}
	prev := rec.begin()
	for turn := 0; sp.more(turn, prev); turn++ {
		if t.l.to.AH != nil {
			t.batch.SendTo(0, t.flags, t.l.to, t.local)
		} else {
			t.batch.Send(0, t.flags, t.local)
		}
		t.sent++
		n, err := t.q.post(t.batch, t.wcs[:], t.q.spins())
		if err == nil {
			err = t.took(ctx, n)
		}
		if err == nil {
			err = t.await(ctx)
		}
		if err != nil {
			return err
		}
		if prev, err = rec.turn(ctx, prev); err != nil {
			return err
		}
	}
	return nil
}

// await waits until it is this side's turn to send.
func (t *sendPingPong) await(ctx context.Context) error {
	for t.received < t.sent+t.ahead {
		n, err := t.q.take(ctx, t.wcs[:])
		if err == nil {
			err = t.took(ctx, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// took counts n received messages and posts receives for others.
func (t *sendPingPong) took(ctx context.Context, n int) error {
	for i := range t.wcs[:n] {
		if err := t.wcs[i].Err(); err != nil {
			return t.cause(err)
		}
	}
	t.received += n
	if t.sent-t.collected >= collectAfter {
		if err := t.collect(ctx); err != nil {
			return err
		}
	}
	return t.l.recv.consumed(n)
}

// collect takes the completions of sends. It waits for them only when there
// would be no room for more sends.
func (t *sendPingPong) collect(ctx context.Context) error {
	n, err := t.sends.cq.Poll(t.sendWCs[:])
	if n == 0 && err == nil && t.sent-t.collected >= pingPongDepth {
		n, err = t.sends.take(ctx, t.sendWCs[:])
	}
	if err != nil {
		return err
	}
	t.collected += n
	return firstError(t.sendWCs[:n])
}

// cause finds the failed send behind receives that were flushed.
func (t *sendPingPong) cause(err error) error {
	n, _ := t.sends.cq.Poll(t.sendWCs[:])
	if sendErr := firstError(t.sendWCs[:n]); sendErr != nil {
		return sendErr
	}
	return err
}

func firstError(wcs []verbs.WC) error {
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

// writePingPong: each side waits for the peer's WRITE by looking at the last
// byte of its memory, then WRITEs itself.
type writePingPong struct {
	q     queue
	batch *verbs.Batch
	local verbs.SGE
	to    verbs.Remote
	flags verbs.SendFlags
	mr    *verbs.MR
	mine  []byte // the last byte of what is sent
	word  int    // offset of the aligned word that holds the last byte of what is received
	shift int    // of the byte in that word
	ahead uint8  // 1: the peer begins
	wcs   [8]verbs.WC

	seq             uint8 // in the last byte sent
	begun           bool
	sent, collected int
}

func newWritePingPong(s *session, l *link, batch *verbs.Batch, local verbs.SGE, flags verbs.SendFlags) *writePingPong {
	last := s.area() + s.p.Size - 1
	var b [8]byte
	b[last%8] = 0xff
	t := &writePingPong{q: s.queue(s.cq), batch: batch, local: local, to: l.remote.At(uint64(s.area())), flags: flags, mr: l.mr,
		mine: l.mr.Bytes()[s.p.Size-1 : s.p.Size], word: last &^ 7, shift: bits.TrailingZeros64(binary.NativeEndian.Uint64(b[:]))}
	if !s.client {
		t.ahead = 1
	}
	return t
}

func (t *writePingPong) run(ctx context.Context, sp span, rec *recorder) error {
	if t.ahead > 0 && !t.begun {
		t.begun = true
		if err := t.await(ctx); err != nil {
			return err
		}
	}
	prev := rec.begin()
	for turn := 0; sp.more(turn, prev); turn++ {
		t.seq++
		t.mine[0] = t.seq
		t.batch.Write(0, t.flags, t.to, t.local)
		t.sent++
		n, err := t.q.post(t.batch, t.wcs[:], 0)
		if n == 0 && err == nil && t.sent-t.collected >= pingPongDepth {
			n, err = t.q.take(ctx, t.wcs[:])
		}
		if err == nil {
			err = firstError(t.wcs[:n])
		}
		t.collected += n
		if err == nil {
			err = t.await(ctx)
		}
		if err != nil {
			return err
		}
		if prev, err = rec.turn(ctx, prev); err != nil {
			return err
		}
	}
	return nil
}

// await waits for the peer's next byte. The word around it is loaded
// atomically: the device writes it behind the compiler's back.
func (t *writePingPong) await(ctx context.Context) error {
	want := t.seq + t.ahead
	for misses := uint(1); ; misses++ {
		w, err := t.mr.Load64(t.word)
		if err != nil {
			return err
		}
		if uint8(w>>t.shift) == want {
			t.q.beat.tick()
			return nil
		}
		if t.q.yield {
			yieldCPU()
		}
		if misses%(restAfter*128) == 0 {
			if err := t.failed(ctx); err != nil {
				return err
			}
		}
	}
}

// failed looks for a reason why nothing arrives: no reply comes to a WRITE
// that has failed.
func (t *writePingPong) failed(ctx context.Context) error {
	n, err := t.q.cq.Poll(t.wcs[:])
	if err != nil {
		return err
	}
	t.collected += n
	if err := firstError(t.wcs[:n]); err != nil {
		return err
	}
	return rest(ctx)
}
