package srd

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Labels are the flow labels of the ways to a port.
func (ep *Endpoint) Labels(to Addr) (all []uint32) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.handles.All(func(w way, _ *verbs.AH) {
		if w.To == to.GID {
			all = append(all, w.Label)
		}
	})
	return all
}

// Waiting is how many messages the program has not received.
func (ep *Endpoint) Waiting() int {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.inbox.n
}

// WithTimes returns the configuration with a delay of responses and a floor of timers of its own.
func (cfg Config) WithTimes(ackDelay, minTimeout time.Duration) Config {
	cfg.ackDelay, cfg.minTimeout = ackDelay, minTimeout
	return cfg
}

// AckDelay returns how long responses wait for others, as learned.
func (ep *Endpoint) AckDelay() time.Duration {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.driver.(*links).e.AckDelay()
}

// Stays reports whether the endpoint leaves polling to the program, which polls or did so within
// the last grace; it returns grace, too.
func (ep *Endpoint) Stays() (bool, time.Duration) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.polls.attended(ep.now()), ep.polls.grace
}

// PostHeld hands a message over, and holds up everything else for d, as an address handle
// would that takes long to make. It returns when that was over.
func (q *SendQueue) PostHeld(r Request, d time.Duration) (over time.Duration, err error) {
	ep := q.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if _, err = ep.post(q, r.ID, r.To, q.cfg.Service, r.Data, false, false); err == nil {
		q.posted++
	}
	ep.pump()
	time.Sleep(d)
	return ep.now(), err
}

// HandedOver returns when packets were handed to the device, as far as that is remembered.
func (ep *Endpoint) HandedOver() (all []time.Duration) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, f := range ep.driver.(*links).flushed {
		if f.n > 0 {
			all = append(all, f.at)
		}
	}
	return all
}

// BreakPath has a path fail and be repaired in vain for d, and returns a function that reports
// whether it is still broken.
func (ep *Endpoint) BreakPath(i int, d time.Duration) (func() bool, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	l := ep.driver.(*links)
	k := l.paths[i]
	gone, err := ep.cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: l.cq, GID: ep.gid})
	if err != nil {
		return nil, err
	}
	if err := gone.Close(); err != nil {
		return nil, err
	}
	own := k.qp
	k.qp, k.broken = gone, true
	ep.polls.nudge()
	time.AfterFunc(d, func() {
		ep.mu.Lock()
		k.qp = own
		ep.mu.Unlock()
	})
	return func() bool {
		ep.mu.Lock()
		defer ep.mu.Unlock()
		return k.broken
	}, nil
}

// Parked returns how many packets wait for an address handle.
func (ep *Endpoint) Parked() int {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.handles.Waiting()
}

// Greeted has greetings come, as from n addresses beside the endpoint's own at which no host
// answers: any host of the network can send those.
func (ep *Endpoint) Greeted(n int) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for i := range n {
		from := wire.Addr{GID: ep.addr.GID, QPN: 5, QKey: ep.addr.QKey}
		from.GID[15] = byte(100 + i)
		k := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: from, Epoch: 1, Token: 1, Stamp: 1, Limits: wire.Limits{MTU: wire.MinMTU}}}
		b := make([]byte, wire.MaxHeaders)
		ep.driver.(*links).e.Receive(engine.Source{GID: from.GID, QPN: 5}, b[:k.Encode(b)])
		ep.pump()
	}
}

// Handles are the address handles of the ways to a port.
func (ep *Endpoint) Handles(to Addr) map[uint32]*verbs.AH {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	all := make(map[uint32]*verbs.AH)
	ep.handles.All(func(w way, ah *verbs.AH) {
		if w.To == to.GID {
			all[w.Label] = ah
		}
	})
	return all
}
