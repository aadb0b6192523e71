package pacer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Config, Class and the rest are those of the shaper.
type (
	// Config says what the limits are; its zero value is useful. Bytes are those on
	// the wire, with headers.
	Config = shaper.Config
	// Class is a traffic shaping class.
	Class = shaper.Class
	// Policy is how requests of one class are chosen.
	Policy = shaper.Policy
	// Reason is the limit that holds a request.
	Reason = shaper.Reason
)

// Policies.
const (
	RoundRobin   = shaper.RoundRobin
	Load         = shaper.Load
	Priority     = shaper.Priority
	Availability = shaper.Availability
	Deficit      = shaper.Deficit
)

// Errors on which a program decides. Those of package verbs come through as they are.
var (
	// ErrClosed: the pacer or the queue pair was closed.
	ErrClosed = verbs.ErrClosed
	// ErrConfig: limits that make no sense.
	ErrConfig = shaper.ErrConfig
)

func opError(op, object string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{op, object, err}
}

// OpError is the failure of one operation on one object.
type OpError struct {
	Op     string
	Object string
	Err    error
}

func (e *OpError) Error() string { return fmt.Sprintf("pacer: %s %s: %v", e.Op, e.Object, e.Err) }
func (e *OpError) Unwrap() error { return e.Err }

// Pacer bounds what the queue pairs that it paces solicit together: a network
// interface is flooded by all of them, not by each. Its methods may be called from
// any number of goroutines.
type Pacer struct {
	start time.Time

	mu       sync.Mutex
	s        *shaper.Shaper
	requests []request // by the shaper's number
	recvs    []recv
	freeRecv []uint32
	queues   map[*verbs.CQ]*CQ
	admit    shaper.Flow
	timer    *time.Timer
	reaping  bool
	closed   bool
	shared   bool // the threshold, with other processes
	onClose  []func() error
}

var devices struct {
	sync.Mutex
	of map[*verbs.Device]*Pacer
}

// For is the pacer of a device. It is made at the first call, and closed with
// [Pacer.Close]. A device that is opened twice has two.
func For(d *verbs.Device) (*Pacer, error) {
	devices.Lock()
	defer devices.Unlock()
	if p := devices.of[d]; p != nil && !p.isClosed() {
		return p, nil
	}
	p, err := New(defaults(d))
	if err != nil {
		return nil, err
	}
	if devices.of == nil {
		devices.of = make(map[*verbs.Device]*Pacer)
	}
	devices.of[d] = p
	p.onClose = append(p.onClose, func() error {
		devices.Lock()
		defer devices.Unlock()
		if devices.of[d] == p {
			delete(devices.of, d)
		}
		return nil
	})
	return p, nil
}

// defaults tunes itself, with the MTU of the device's first active port.
func defaults(d *verbs.Device) Config {
	c := Config{Tune: true}
	for n := 1; n <= d.Attr().Ports; n++ {
		if port, err := d.Port(uint8(n)); err == nil && port.State == verbs.PortActive {
			c.MTU = port.ActiveMTU.Bytes()
			break
		}
	}
	return c
}

// New makes a pacer.
func New(c Config) (*Pacer, error) {
	s, err := shaper.New(c)
	if err != nil {
		return nil, opError("make", "pacer", err)
	}
	p := &Pacer{start: time.Now(), s: s, queues: make(map[*verbs.CQ]*CQ)}
	if p.admit, err = s.AddFlow(shaper.FlowConfig{ID: admissions}); err != nil {
		return nil, opError("make", "pacer", err)
	}
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	return p, nil
}

// admissions is the flow of what is acquired without a queue pair.
const admissions = 1 << 63

func (p *Pacer) now() time.Duration { return time.Since(p.start) }

func (p *Pacer) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Reconfigure changes the limits while requests are under way.
func (p *Pacer) Reconfigure(c Config) error {
	p.mu.Lock()
	defer p.unlock()
	if p.closed {
		return opError("reconfigure", "pacer", ErrClosed)
	}
	return opError("reconfigure", "pacer", p.s.Reconfigure(c, p.now()))
}

// Config is what the pacer goes by, defaults filled in.
func (p *Pacer) Config() Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.Config()
}

// Pause holds everything that is not granted, and false lets it go: for link partners
// that ask for a pause.
func (p *Pacer) Pause(on bool) {
	p.mu.Lock()
	defer p.unlock()
	p.s.Pause(on)
}

// Served debits the outbound budget by a response that the device sent by itself,
// to a peer that READs this host's memory.
func (p *Pacer) Served(bytes int64) {
	p.mu.Lock()
	defer p.unlock()
	p.s.Served(bytes, p.now())
}

// unlock lets everything go that may, and gives up the lock.
func (p *Pacer) unlock() {
	p.pump()
	p.release()
}

// release gives up the lock and wakes who waits.
func (p *Pacer) release() {
	var wake [8]*CQ
	n := 0
	for _, c := range p.queues {
		if c.rouse && n < len(wake) {
			c.rouse = false
			wake[n] = c
			n++
		}
	}
	p.mu.Unlock()
	for _, c := range wake[:n] {
		c.d.Wake(&c.waiter)
	}
}

// tick looks again when a bucket has enough, and takes completions that nobody
// polls: their credit holds others.
func (p *Pacer) tick() {
	p.mu.Lock()
	p.reaping = false
	var polls [8]*CQ
	n := 0
	for _, c := range p.queues {
		if n < len(polls) {
			polls[n] = c
			n++
		}
	}
	p.mu.Unlock()
	for _, c := range polls[:n] {
		c.d.Poll(0)
	}
	p.mu.Lock()
	p.unlock()
}

// reapAfter is how long held requests wait before the pacer polls by itself.
const reapAfter = 2 * time.Millisecond

// pump posts what may go.
func (p *Pacer) pump() {
	now := p.now()
	var last *QP
	for {
		g, ok := p.s.Next(now)
		if !ok {
			if last == nil {
				break
			}
			last.flush() // what cannot be posted gives credit back
			last = nil
			p.collect()
			continue
		}
		if g.Flow == p.admit {
			p.requests[g.Request].admitted(g.Sub)
			continue
		}
		q := p.requests[g.Request].qp
		if last != nil && last != q {
			last.flush()
		}
		q.add(g)
		last = q
	}
	p.collect()
	p.arm(now)
}

func (p *Pacer) arm(now time.Duration) {
	at, ok := p.s.Wake()
	switch {
	case ok:
		p.timer.Reset(max(at-now, 0))
	case p.s.Alive() > 0 && !p.reaping && p.s.Held():
		p.reaping = true
		p.timer.Reset(reapAfter)
	}
}

// collect hands out what is over.
func (p *Pacer) collect() {
	for {
		n, _, complete, ok := p.s.Finished()
		if !ok {
			return
		}
		r := &p.requests[n]
		if r.qp == nil {
			p.s.Free(n)
			continue
		}
		r.qp.finished(n, complete)
	}
}

// Credit is the right to solicit bytes, for programs that post by themselves.
type Credit struct {
	p   *Pacer
	sub shaper.Sub
}

// Acquire waits until n response bytes may be solicited. [Credit.Release] is due when
// they have come, or will not.
func (p *Pacer) Acquire(ctx context.Context, class, n int) (Credit, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Credit{}, opError("acquire from", "pacer", ErrClosed)
	}
	at, err := p.s.Submit(p.admit, shaper.Command{Kind: shaper.Get, Length: n, Class: class, Whole: true}, p.now())
	if err != nil {
		p.mu.Unlock()
		return Credit{}, opError("acquire from", "pacer", err)
	}
	r := p.request(at)
	*r = request{sub: noSub, token: r.token}
	p.pump()
	if r = &p.requests[at]; r.sub != noSub {
		sub := r.sub
		select {
		case <-r.token: // that of this grant
		default:
		}
		p.release()
		return Credit{p, sub}, nil
	}
	if r.token == nil {
		r.token = make(chan struct{}, 1)
	}
	token := r.token
	p.release()
	select {
	case <-token:
		p.mu.Lock()
		sub := p.requests[at].sub
		p.mu.Unlock()
		return Credit{p, sub}, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	if sub := p.requests[at].sub; sub != noSub { // granted meanwhile
		<-token
		p.s.Completed(sub, p.now())
	} else {
		p.s.Cancel(at)
	}
	p.unlock()
	return Credit{}, ctx.Err()
}

// Release gives a credit back. Twice is not an error.
func (c Credit) Release() {
	if c.p == nil {
		return
	}
	c.p.mu.Lock()
	c.p.s.Completed(c.sub, c.p.now())
	c.p.unlock()
}

// request is the driver's part of a command.
func (p *Pacer) request(n shaper.Request) *request {
	for int(n) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}
	return &p.requests[n]
}

// Close ends pacing. Queue pairs that are paced have to be closed before. Closing
// twice is not an error.
func (p *Pacer) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if len(p.queues) > 0 {
		p.mu.Unlock()
		return opError("close", "pacer", verbs.ErrInUse)
	}
	p.closed = true
	p.timer.Stop()
	then := p.onClose
	p.mu.Unlock()
	var errs []error
	for _, f := range then {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
