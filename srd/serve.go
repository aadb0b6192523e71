package srd

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
)

// serve does what is due while no goroutine of the program waits.
func (ep *Endpoint) serve(ctx context.Context) {
	defer ep.served.Done()
	ended := false
	defer func() {
		if ended {
			return
		}
		ep.logs.Error("srd: OnMessage ended its goroutine: runtime.Goexit")
		ep.served.Add(1)
		go ep.serve(ctx)
	}()
	ep.serveAll(ctx)
	ended = true
}

func (ep *Endpoint) serveAll(ctx context.Context) {
	for {
		ep.polls.own.Reset()
		ep.mu.Lock()
		ep.mend()
		ep.pump()
		serving := ep.polls.always || !ep.polls.attended(ep.now())
		ep.polls.serving = serving
		ep.mu.Unlock()
		if ep.cfg.OnMessage != nil {
			ep.callBack()
		}
		if !serving {
			select {
			case <-ep.polls.nudged:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := ep.d.Wait(ctx, &ep.polls.own); err != nil {
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

// fullPause is the interval of looking at timers while packets wait for others to complete:
// completions wake a goroutine by themselves.
const fullPause = time.Millisecond

// setAlarm has due called when the machine has something to do, or serve to poll.
func (ep *Endpoint) setAlarm(now time.Duration) {
	wait := ep.e.Wait()
	if wait == 0 && ep.driver.full() {
		wait = fullPause
	}
	at := ep.polls.graceEnds(now)
	if wait < alarm.Never/2 {
		at = min(at, now+wait)
	}
	if ep.mendAt > 0 {
		at = min(at, ep.mendAt)
	}
	if at < alarm.Never {
		ep.polls.alarm.Set(at, now)
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
	if again || !ep.polls.serving && !ep.polls.attended(ep.now()) {
		ep.polls.nudge()
	}
	ep.mu.Unlock()
}
