package pacer

import (
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Errors on which a program decides. Those of package verbs come through as they are.
var (
	// ErrClosed: the pacer or the queue pair was closed.
	ErrClosed = verbs.ErrClosed
	// ErrConfig: limits that make no sense.
	ErrConfig = verbs.ErrAttributes
)

// OpError is the failure of one operation on one object, see [verbs.OpError].
type OpError = verbs.OpError

func opError(op, object string, err error) error { return operr.In("pacer", op, object, err) }

// Pacer bounds what the queue pairs that it paces solicit together: a network
// interface is flooded by all of them, not by each. Its methods may be called from
// any number of goroutines.
type Pacer struct {
	start  time.Time
	device string // the name of its device, if For made it

	mu       sync.Mutex
	s        *shaper.Shaper
	requests []request // by the shaper's number
	recvs    []recv
	freeRecv []uint32
	queues   map[*verbs.CQ]*CQ
	wakes    []*CQ         // with waiters that have to be woken
	admit    []shaper.Flow // of acquisitions: for each class, large ones and small ones
	timer    *time.Timer
	armed    time.Duration // when it goes off; 0: not at all
	reapIn   time.Duration // how long held requests wait before the pacer polls by itself
	came     uint64        // completions so far,
	seen     uint64        // and when it did that last
	held     bool          // by the program,
	linkHeld bool          // and by the link partner
	closed   bool
	done     chan struct{} // closed when it is
	onClose  []func() error
}

var devices struct {
	sync.Mutex
	of map[string]*Pacer
}

// ForDevice returns this process's pacer of a device, however often the device is opened. It is made
// at the first call, with the default limits, and closed with [Pacer.Close].
// [Pacer.Reconfigure] sets others: a larger Threshold for peers that are far away, for
// instance: their responses hold their part of it for a round trip.
func ForDevice(d *verbs.Device) (*Pacer, error) {
	devices.Lock()
	defer devices.Unlock()
	name := d.Name()
	if p := devices.of[name]; p != nil && !p.isClosed() {
		return p, nil
	}
	p, err := New(defaults(d))
	if err != nil {
		return nil, err
	}
	if devices.of == nil {
		devices.of = make(map[string]*Pacer)
	}
	devices.of[name], p.device = p, name
	p.onClose = append(p.onClose, func() error {
		devices.Lock()
		defer devices.Unlock()
		if devices.of[name] == p {
			delete(devices.of, name)
		}
		return nil
	})
	return p, nil
}

// Device returns the name of the device for which [ForDevice] made the pacer. It is empty for a pacer
// that [New] made, which may pace queue pairs of any device.
func (p *Pacer) Device() string { return p.device }

// New returns a pacer.
func New(c Config) (*Pacer, error) {
	s, err := shaper.New(shaper.Config(c))
	if err != nil {
		return nil, opError("make", "pacer", err)
	}
	p := &Pacer{start: time.Now(), s: s, queues: make(map[*verbs.CQ]*CQ), reapIn: reapAfter, done: make(chan struct{})}
	if err := p.admissions(); err != nil {
		return nil, opError("make", "pacer", err)
	}
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	return p, nil
}

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
	err := p.s.Reconfigure(shaper.Config(c), p.now())
	if err == nil {
		err = p.admissions()
	}
	return opError("reconfigure", "pacer", err)
}

// Config returns the configuration, with defaults filled in.
func (p *Pacer) Config() Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Config(p.s.Config())
}

// Pause holds everything that is not granted if on is true, or lets it go.
func (p *Pacer) Pause(on bool) {
	p.mu.Lock()
	defer p.unlock()
	p.held = on
	p.s.Pause(p.held || p.linkHeld)
}

// PauseLink is Pause for the link partner, which asks for it by priority flow control:
// see package [github.com/goverbs/goverbs/pacer/pfc]. Both have to let go.
func (p *Pacer) PauseLink(on bool) {
	p.mu.Lock()
	defer p.unlock()
	p.linkHeld = on
	p.s.Pause(p.held || p.linkHeld)
}

// Congested records that this host had to ask its link partner for a pause: responses came
// faster than it absorbed them. A threshold that is found (Tune) shrinks to half.
func (p *Pacer) Congested() {
	p.mu.Lock()
	defer p.unlock()
	p.s.Congested(p.now())
}

// unlock posts everything that may go, and releases the lock.
func (p *Pacer) unlock() {
	p.pump(p.now())
	p.release()
}

// release releases the lock and wakes the waiters of all CQs in p.wakes.
func (p *Pacer) release() {
	if len(p.wakes) == 0 {
		p.mu.Unlock()
		return
	}
	p.wake()
}

func (p *Pacer) wake() {
	for {
		var wake [8]*CQ
		n := copy(wake[:], p.wakes)
		p.wakes = append(p.wakes[:0], p.wakes[n:]...)
		for _, c := range wake[:n] {
			c.woken = false
		}
		more := len(p.wakes) > 0
		p.mu.Unlock()
		for _, c := range wake[:n] {
			c.d.Wake(&c.nobody)
		}
		if !more {
			return
		}
		p.mu.Lock()
	}
}

// tick posts requests when a bucket has enough, and polls for a program that does not.
func (p *Pacer) tick() {
	p.mu.Lock()
	p.armed = 0
	polled := p.came != p.seen
	p.mu.Unlock()
	found := p.reap()
	p.mu.Lock()
	if p.seen = p.came; polled && !found {
		p.reapIn = min(2*p.reapIn, maxReap)
	} else {
		p.reapIn = reapAfter
	}
	p.unlock()
}

// reap polls for a program that does not: credit of its completions holds requests of this
// process, or of others that share the threshold. It reports whether there were completions.
func (p *Pacer) reap() (found bool) {
	var few [16]*CQ
	polls := few[:0]
	p.mu.Lock()
	if p.underWay() {
		for _, c := range p.queues {
			polls = append(polls, c)
		}
	}
	p.mu.Unlock()
	for _, c := range polls {
		n, _ := c.d.Poll(0)
		found = found || n > 0
	}
	return found
}

// underWay reports whether completions are to come. All requests have bytes on the wire.
func (p *Pacer) underWay() bool { return p.s.Outstanding()+p.s.Sending() > 0 }

// reapAfter is how long held requests wait before the pacer polls by itself. The time grows up
// to maxReap while completions come and the pacer finds none: then the program polls.
const (
	reapAfter = 2 * time.Millisecond
	maxReap   = 16 * time.Millisecond
)

// pump posts the requests that may go. p.mu must be held.
func (p *Pacer) pump(now time.Duration) {
	if !p.s.Held() {
		p.collect()
		return
	}
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
		q := p.requests[g.Request].qp
		if q == nil {
			p.requests[g.Request].admitted(g.Sub)
			continue
		}
		if last != nil && last != q {
			last.flush()
		}
		q.granted(g)
		last = q
	}
	p.collect()
	p.arm(now)
}

// arm sets the timer for [Pacer.tick]: for when a bucket has enough, and to reapIn if
// completions that the program does not poll may hold requests.
func (p *Pacer) arm(now time.Duration) {
	at, ok := p.s.Wake()
	if soon := now + p.reapIn; p.s.Held() && p.underWay() && len(p.queues) > 0 && (!ok || at > soon) {
		at, ok = soon, true
	}
	if !ok || p.closed || p.armed != 0 && p.armed <= at {
		return
	}
	p.armed = max(at, now, 1)
	p.timer.Reset(p.armed - now)
}

// collect hands out the requests that are over.
func (p *Pacer) collect() {
	for p.s.Ended() {
		n, _, complete, _ := p.s.Finished()
		r := &p.requests[n]
		if r.qp == nil {
			p.s.Free(n)
			continue
		}
		r.qp.finished(n, complete)
	}
}

// request returns the driver's part of a command.
func (p *Pacer) request(n shaper.Request) *request {
	for int(n) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}
	return &p.requests[n]
}

// Close ends pacing; calls that wait in [Pacer.Acquire] return [ErrClosed]. Queue pairs
// that are paced have to be closed before. Closing twice is not an error.
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
	close(p.done)
	p.timer.Stop()
	then := p.onClose
	p.mu.Unlock()
	var errs []error
	for _, f := range then {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
