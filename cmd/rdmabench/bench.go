package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// bench is one run of the program, as client or as server.
type bench struct {
	o        *options
	out, log io.Writer
	host     *host // opened once its address is known
	headed   bool  // the table has its heading
}

func (b *bench) close() error {
	if b.host == nil {
		return nil
	}
	return b.host.close()
}

func (b *bench) client(ctx context.Context) error {
	if err := b.probe(); err != nil {
		return err
	}
	conn, err := dial(ctx, b.o)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer conn.Close()
	return b.tests(ctx, conn)
}

func (b *bench) server(ctx context.Context) error {
	if err := b.probe(); err != nil {
		return err
	}
	ln, err := listen(ctx, b.o)
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Fprintf(b.log, "rdmabench: waiting for a client at %v\n", ln.Addr())
	for {
		conn, err := accept(ctx, ln)
		if err != nil {
			if b.o.loop && ctx.Err() != nil {
				return nil
			}
			return interrupted(ctx, err)
		}
		err = b.tests(ctx, conn)
		conn.Close()
		if !b.o.loop || ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintf(b.log, "rdmabench: client %v: %v\n", conn.RemoteAddr(), err)
		}
	}
}

var errInterrupted = errors.New("interrupted")

// interrupted is err, or that the user ended the program.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return errInterrupted
	}
	return err
}

// open opens the device: the one that was named, or the one with the address
// that the peer reached.
func (b *bench) open(local net.Addr) (err error) {
	if b.host == nil {
		b.host, err = openHost(b.o, local)
	}
	return err
}

// probe says at once if there is no device to be used. One that was named stays
// open: the peers then do not wait for each other's device once they are
// connected.
func (b *bench) probe() error {
	if b.o.device != "" {
		return b.open(nil)
	}
	h, err := openHost(b.o, nil)
	if err != nil {
		return err
	}
	return h.close()
}

// tests runs the test for each size over one connection.
func (b *bench) tests(ctx context.Context, conn net.Conn) error {
	if err := b.open(conn.LocalAddr()); err != nil {
		return err
	}
	mtu := b.host.mtu.Bytes()
	if b.o.MTU != 0 {
		mtu = min(mtu, b.o.MTU)
	}
	c := &control{conn: conn}
	for _, size := range b.o.sizes(mtu) {
		if b.o.Transport == "UD" && size > mtu {
			return fmt.Errorf("-s %d: a datagram has at most %d bytes here", size, mtu)
		}
		p := b.o.params
		p.Size = size
		r, err := b.test(ctx, c, p)
		if err != nil {
			return interrupted(ctx, err)
		}
		if b.o.server == "" {
			continue
		}
		if err := r.print(b.out, b.o, !b.headed); err != nil {
			return err
		}
		b.headed = true
	}
	return nil
}

// test runs one test of one size. Only a client has a result.
func (b *bench) test(parent context.Context, c *control, p params) (r *result, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer func() {
		if err != nil && !errors.Is(err, errPeerGone) {
			// The peer need not know; its own view of the failure does too.
			_ = c.say(message{word: wordFailed, text: interrupted(parent, err).Error()})
		}
	}()
	s, err := connect(ctx, b.host, b.o, c, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := c.meet(ctx); err != nil {
		return nil, err
	}
	c.watch(ctx, cancel)
	if !p.reliable() && (s.client || p.pingPong() || p.Test == "send_bw") { // others see nothing arrive
		defer s.beat.watch(cancel)()
	}
	if b.o.server == "" {
		return nil, s.serve(ctx)
	}
	used, err := s.setup(b.host)
	if err != nil {
		return nil, err
	}
	r = newResult(s.p, used)
	m := newMeter(b.o.progress, b.log, s.p)
	if err := s.drive(ctx, r, m); err != nil {
		return nil, ended(ctx, err)
	}
	if err := c.say(message{word: wordDone, count: uint64(r.sent)}); err != nil {
		return nil, err
	}
	received, err := c.peerDone(ctx)
	if err != nil {
		return nil, err
	}
	if p.Test == "send_bw" {
		r.received = &received
	}
	return r, nil
}

// ended says why a test ended early: the reason for which its context was
// cancelled, if it was, explains the error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	var failed *verbs.WCError
	if errors.As(err, &failed) {
		return err
	}
	return context.Cause(ctx)
}

// drive is the client's part of the test.
func (s *session) drive(ctx context.Context, r *result, m *meter) error {
	if s.p.bandwidth() {
		b := newSender(s)
		if err := b.run(ctx, span{n: s.p.Warmup}, nil); err != nil {
			return err
		}
		b.reset(s.p)
		if err := b.run(ctx, s.span(), m); err != nil {
			return err
		}
		r.rate(b)
		return nil
	}
	loop, err := newLatency(s)
	if err != nil {
		return err
	}
	// The histogram is some megabytes: a collection that it causes is not to
	// run beside the test.
	rec := newRecorder(s.halves(), m, s.turns())
	if err := rec.touch(ctx); err != nil {
		return err
	}
	runtime.GC()
	if err := loop(ctx, span{n: s.p.Warmup}, newRecorder(1, nil, 0)); err != nil {
		return err
	}
	sp := s.span()
	rec.from, rec.to = sp.from, sp.to
	if err := loop(ctx, sp, rec); err != nil {
		return err
	}
	rec.flush()
	r.latencies(rec)
	return nil
}

// serve is the server's part: its own, or just to be there, until the client
// says that it is done.
func (s *session) serve(ctx context.Context) error {
	var received uint64
	var err error
	switch {
	case s.p.pingPong():
		var loop latencyLoop
		if loop, err = newLatency(s); err == nil {
			err = loop(ctx, span{n: forever}, newRecorder(1, nil, 0))
		}
	case s.p.Test == "send_bw":
		received, err = s.receive(ctx)
	}
	if err != nil && !errors.Is(ended(ctx, err), errPeerDone) {
		return ended(ctx, err)
	}
	if _, err := s.control.peerDone(ctx); err != nil {
		return err
	}
	return s.control.say(message{word: wordDone, count: received})
}

// span says when a loop ends: after n turns, or at a time of clock.
type span struct {
	n        int
	until    int64 // 0: n counts
	from, to int64 // what is measured until then
}

const forever = int(^uint(0) >> 1)

func (s span) more(turn int, now int64) bool {
	if s.until != 0 {
		return now < s.until
	}
	return turn < s.n
}

func (s *session) span() span {
	if s.p.Duration > 0 {
		now, margin := clock(), int64(s.o.margin)
		until := now + int64(s.p.Duration)
		return span{until: until, from: now + margin, to: until - margin}
	}
	return span{n: s.p.Iterations}
}

// turns returns how many turns of a latency test are to be expected at most.
func (s *session) turns() int {
	if s.p.Duration > 0 {
		return maxSamples
	}
	return s.p.Iterations
}

// halves is by what the time of a turn is divided: a ping-pong's turn is two
// messages.
func (s *session) halves() int64 {
	if s.p.pingPong() {
		return 2
	}
	return 1
}

var epoch = time.Now()

// clock returns the monotonic time in nanoseconds. [time.Now] would read the wall
// clock as well, and each reading can be a system call in a virtual machine.
func clock() int64 { return int64(time.Since(epoch)) }
