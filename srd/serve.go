package srd

import (
	"context"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/verbs"
)

// Who polls. A program's goroutine that waits polls for all, and does what is due: that
// takes no second goroutine, and no event. Between two waits of the program nobody polls,
// for as long as a response may wait for company; then the endpoint's own goroutine
// begins to, and stands aside when the program waits again. With a callback it always
// polls.

// serve does what is due when nobody who waits does.
func (ep *Endpoint) serve(ctx context.Context) {
	defer ep.served.Done()
	ended := false
	defer func() {
		if ended {
			return
		}
		ep.logs.log(slog.LevelError, "srd: OnMessage ended its goroutine: runtime.Goexit")
		ep.served.Add(1)
		go ep.serve(ctx)
	}()
	ep.serveAll(ctx)
	ended = true
}

func (ep *Endpoint) serveAll(ctx context.Context) {
	for {
		ep.service.Reset()
		ep.mu.Lock()
		ep.mend()
		ep.pump()
		ep.serving = ep.cfg.OnMessage != nil || !ep.attended()
		serving := ep.serving
		ep.mu.Unlock()
		if ep.cfg.OnMessage != nil {
			ep.callBack()
		}
		if !serving {
			select {
			case <-ep.nudged:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := ep.d.Wait(ctx, &ep.service); err != nil {
			if ctx.Err() == nil {
				ep.fail(err)
			}
			return
		}
	}
}

// What could not be repaired is tried again after mendPause, and twice as long each time, up to
// 256 times it.
const mendPause = 20 * time.Millisecond

// mend has the driver repair what the device gave up.
func (ep *Endpoint) mend() {
	ep.mendAt = 0
	if ep.driver.mend() {
		ep.unmended = 0
		return
	}
	ep.mendAt = ep.now() + mendPause<<ep.unmended
	ep.unmended = min(ep.unmended+1, 8)
}

// attended tells whether the program polls, or did a moment ago.
func (ep *Endpoint) attended() bool { return len(ep.waiting) > 0 || ep.now() < ep.left+ep.grace }

// fullPause is how often timers are looked at while packets wait for others to complete,
// which goes on by itself.
const fullPause = time.Millisecond

// setAlarm has due called when the engine has something to do, or serve to poll.
func (ep *Endpoint) setAlarm(now time.Duration) {
	at := alarm.Never
	wait := ep.e.Wait()
	if wait == 0 && ep.driver.full() {
		wait = fullPause
	}
	if wait < alarm.Never/2 {
		at = now + wait
	}
	// Once that is over, serve was nudged. An alarm that rang on until serve polls would keep it
	// from a processor for milliseconds: who is woken by a timer runs first.
	if end := ep.left + ep.grace; !ep.serving && len(ep.waiting) == 0 && now < end {
		at = min(at, end)
	}
	if ep.mendAt > 0 {
		at = min(at, ep.mendAt)
	}
	if at < alarm.Never {
		ep.alarm.Set(at, now)
	}
}

// enter and leave are called, with the lock held, by whoever waits.
func (ep *Endpoint) enter(w *verbs.Waiter) {
	ep.waiting = append(ep.waiting, w)
	if ep.serving && ep.cfg.OnMessage == nil {
		ep.serving = false
		ep.d.Wake(&ep.service)
	}
}

func (ep *Endpoint) leave(w *verbs.Waiter) {
	ep.waiting = without(ep.waiting, w)
	switch {
	case len(ep.waiting) == 0 && !ep.serving:
		ep.left = ep.clock
		ep.alarm.Set(ep.left+ep.grace, ep.left)
	case ep.stale: // who leaves may have been the one that was woken to do what is due
		ep.attend()
	}
}

// stays is called at the end of a call that does not wait and began at a time: it is none for
// which the program was away. A list of packets takes longer than grace on a slow host.
func (ep *Endpoint) stays(since time.Duration) {
	if len(ep.waiting) == 0 && !ep.serving {
		ep.left += ep.now() - since
	}
}

// due is called by the alarm: who polls need not be woken for it.
func (ep *Endpoint) due() {
	ep.mu.Lock()
	again := ep.mendAt > 0 && ep.now() >= ep.mendAt
	if again {
		ep.mendAt = 0 // serve is told
	}
	ep.pump()
	if again || !ep.serving && !ep.attended() {
		ep.nudge()
	}
	ep.mu.Unlock()
}

// nudge has serve look at everything. It is called with the lock held.
func (ep *Endpoint) nudge() {
	if ep.serving {
		ep.wake(&ep.service)
		return
	}
	select {
	case ep.nudged <- struct{}{}:
	default:
	}
}

// attend has somebody do what is due: a program's goroutine that polls, before all. It is
// called with the lock held.
func (ep *Endpoint) attend() {
	if n := len(ep.waiting); n > 0 {
		ep.wake(ep.waiting[n-1])
		return
	}
	ep.nudge()
	ep.woke = true
}
