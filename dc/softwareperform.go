package dc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// notPosted is why the device did not take a request.
type notPosted struct{ error }

func (e *notPosted) Unwrap() error { return e.error }

func yield() { runtime.Gosched() }

// restEvery is how often a goroutine that connects one queue pair after the other yields
// its turn. The runtime's monitor takes the processor away from a goroutine that has had
// its turn for 10 ms, at each look while it is in C, and then looks every 20 us.
const restEvery = 4 * time.Millisecond

// rests counts the time towards that.
type rests struct{ begun, last time.Duration }

// due reports whether the turn is to be yielded; it is called at each piece of work. It
// begins to count anew after a pause, in which others had their turn.
func (r *rests) due(now time.Duration) bool {
	if now-r.last >= restEvery {
		r.begun = now
	}
	r.last = now
	if now-r.begun < restEvery {
		return false
	}
	r.begun = now
	return true
}

// overlap says that queue pairs are connected beside everything else: the kernel
// waits in the middle of it, for a work queue that looks up the neighbour, and
// goroutines that poll need not. With one CPU it would only be dearer.
var overlap = runtime.NumCPU() > 1

func (s *software) busy() bool { return len(s.core.Actions) > 0 || s.core.Retime }

// perform carries out what the machine wants. What concerns requests is done
// before another goroutine sees the state; what takes time, or sends, without the lock:
// no other goroutine uses a context while its queue pair changes.
func (s *software) perform() {
	i := s.i
	s.acting.Add(1)
	defer s.acting.Done()
	for i.open() {
		s.urgent()
		later := s.core.Actions
		s.core.Actions, s.spare = s.spare, nil
		if len(later) == 0 {
			s.core.Actions, s.spare = later, s.core.Actions
			break
		}
		s.name(later)
		rest := s.rests.due(i.now())
		i.mu.Unlock()
		if rest {
			yield()
		}
		for k := range later {
			if overlap && later[k].Kind == session.ActJoin {
				a := later[k]
				s.work.Go(func() {
					s.join(&a)
					i.mu.Lock()
					i.unlock()
				})
				continue
			}
			s.later(&later[k])
		}
		clear(later)
		i.mu.Lock()
		s.spare = later[:0]
	}
	if i.open() && s.core.Retime {
		s.core.Retime = false
		s.timer.Set(s.core.Next(), i.now())
	}
}

// urgent carries out the actions that must come before the lock is released. Some
// bring others.
func (s *software) urgent() {
	rest := 0
	for k := 0; k < len(s.core.Actions); k++ {
		switch s.core.Actions[k].Kind {
		case session.ActReady, session.ActAbort, session.ActFail, session.ActLost:
			a := s.core.Actions[k]
			s.atOnce(&a)
		default:
			if rest != k {
				s.core.Actions[rest] = s.core.Actions[k]
			}
			rest++
		}
	}
	s.core.Actions = s.core.Actions[:rest]
}

func (s *software) atOnce(a *session.Action) {
	i := s.i
	switch a.Kind {
	case session.ActReady:
		s.attached(owner(a.Peer), nil)
		if a.Context.Attached() {
			s.pump(a.Context)
		}
	case session.ActAbort:
		if err := s.qps[a.Context.Index].qp.ToError(); err != nil {
			i.cfg.Logger.Error("dc: abort session", "err", err)
		}
	case session.ActFail:
		p := owner(a.Peer)
		err := a.Err
		if errors.Is(err, ErrUnreachable) && !p.keyed() {
			err = errors.Join(ErrAccessKey, err)
		}
		err = opError("connect to", p.addr.String(), err)
		s.attached(p, err)
		i.failQueue(p, err)
		i.event(Event{Kind: EventUnreachable, Peer: p, Err: err})
	case session.ActLost:
		p, q := owner(a.Peer), &s.qps[a.Context.Index]
		err := q.failure
		if a.Err != nil {
			err = opError("keep session with", p.addr.String(), fmt.Errorf("%w: %w", ErrSession, a.Err))
		}
		i.event(Event{Kind: EventSessionLost, Peer: p, Err: err})
	}
}

func (s *software) later(a *session.Action) {
	switch a.Kind {
	case session.ActLookup:
		p := a.Peer
		s.work.Go(func() { s.lookUp(p) })
	case session.ActSend:
		s.send(a)
	case session.ActJoin:
		s.join(a)
	case session.ActReset:
		s.reset(a)
	}
}

// name puts into messages that ask for a session the number of the queue pair that it is
// for. mu must be held: another queue pair may take that one's place.
func (s *software) name(as []session.Action) {
	for k := range as {
		if m := &as[k].Message; as[k].Kind == session.ActSend && m.Kind == wire.Connect {
			m.QPN, m.Reply = s.qps[m.Context].qp.Num(), s.reply
		}
	}
}

func (s *software) send(a *session.Action) { s.ctl.send(a.To, &a.Message) }

func (s *software) join(a *session.Action) {
	i := s.i
	q := &s.qps[a.Context.Index]
	rtr, rts := &q.way[2], &q.way[3]
	rts.Attr.SQPSN = a.Context.Session.PSN
	again := a.Again
	err := s.ctl.gid.attempt(func(gid verbs.GIDEntry) error {
		toResponder(rtr, s.ctl, gid, &a.Message, i.cfg.TrafficClass)
		rtr.Attr.MaxDestReadAtomic = 0 // there are no READs here, and room for them would be made and cleared each time
		q.mtu = rtr.Attr.PathMTU.Bytes()
		steps := q.way[2:]
		if again {
			steps = q.way[:]
		}
		again = true // if it fails
		return driver.ModifySteps(q.qp, steps...)
	})
	i.mu.Lock()
	if i.open() {
		i.outside++
		q.failure = nil
		s.core.Joined(a.Context, err, i.now())
		s.urgent()
		i.outside--
	}
	i.mu.Unlock()
}

// reset makes a queue pair ready for the next session; if that has failed before,
// with another queue pair.
func (s *software) reset(a *session.Action) {
	i := s.i
	q := &s.qps[a.Context.Index]
	var err error
	if a.Again {
		next := contextQP{ring: q.ring}
		if err = s.create(&next); err == nil {
			err = next.qp.Init()
			old := q.qp
			i.mu.Lock()
			q.qp, q.batch, q.way = next.qp, next.batch, next.way
			i.mu.Unlock()
			err = errors.Join(err, old.Close())
		}
	} else {
		err = driver.ModifySteps(q.qp, q.way[:2]...)
	}
	if err != nil {
		i.cfg.Logger.Error("dc: initiator context damaged", "err", err)
	}
	i.mu.Lock()
	if i.open() {
		s.core.ResetDone(a.Context, err, i.now())
		s.urgent()
	}
	i.mu.Unlock()
}

// lookUp asks the service of a target where that is.
func (s *software) lookUp(m *session.Peer) {
	i := s.i
	p := owner(m)
	ctx, cancel := context.WithTimeout(i.ctx, lookupTime)
	defer cancel()
	a, err := askService(ctx, s.ctl.gid.entry(), p.addr)
	if err != nil && i.ctx.Err() == nil {
		i.cfg.Logger.Info("dc: target not found", "target", p.addr, "err", err)
	}
	i.step(func() { s.core.Found(m, a.control(), err, i.now()) })
}
