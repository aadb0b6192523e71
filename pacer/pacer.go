package pacer

import (
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

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
