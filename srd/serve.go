package srd

import (
	"context"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/verbs"
)

// A goroutine of the program that waits polls for all, and does what is due: that takes no
// second goroutine, and no event. Between two waits of the program there is no polling for
// the time that a response may be delayed; then the endpoint's own goroutine polls until the
// program waits again. With a callback it always polls.

// serve does what is due while no goroutine of the program waits.
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

// mendPause is the pause after a failed repair. It doubles each time, up to 256 times mendPause.
const mendPause = 20 * time.Millisecond

// mend has the driver repair the queue pairs that failed.
func (ep *Endpoint) mend() {
	ep.mendAt = 0
	if ep.driver.mend() {
		ep.unmended = 0
		return
	}
	ep.mendAt = ep.now() + mendPause<<ep.unmended
	ep.unmended = min(ep.unmended+1, 8)
}

// attended reports whether the program polls, or did within the last ep.grace.
func (ep *Endpoint) attended() bool { return len(ep.waiting) > 0 || ep.now() < ep.left+ep.grace }

// fullPause is the interval of looking at timers while packets wait for others to complete:
// completions wake a goroutine by themselves.
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
	// After grace, serve was nudged. An alarm that fired until serve polls would keep it from a
	// processor for milliseconds: goroutines that timers wake run first.
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

// enter and leave frame the wait of a goroutine. ep.mu must be held.
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
	case ep.stale: // w may be the waiter that was woken to do what is due
		ep.attend()
	}
}

// stays is called at the end of a call that does not wait and began at since. Its time does not
// count as absence of the program: a list of packets takes longer than grace on a slow host.
func (ep *Endpoint) stays(since time.Duration) {
	if len(ep.waiting) == 0 && !ep.serving {
		ep.left += ep.now() - since
	}
}

// due does what is due when the alarm fires; goroutines that poll need not be woken for it.
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

// nudge wakes serve. ep.mu must be held.
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

// attend wakes a goroutine that does what is due: one of the program that polls if there is
// one, else serve. ep.mu must be held.
func (ep *Endpoint) attend() {
	if n := len(ep.waiting); n > 0 {
		ep.wake(ep.waiting[n-1])
		return
	}
	ep.nudge()
	ep.woke = true
}
