package srd

import (
	"time"

	"github.com/goverbs/goverbs/internal/alarm"
	"github.com/goverbs/goverbs/internal/procs"
	"github.com/goverbs/goverbs/verbs"
)

// pollers are the goroutines that poll for completions, and do what is due. A goroutine of the
// program that waits polls for all: that takes no second goroutine, and no event. Between two waits
// of the program there is no polling for the time that a response may be delayed; then the
// endpoint's own goroutine polls until the program waits again. With a callback it always polls.
//
// The endpoint's lock guards them.
type pollers struct {
	d     *verbs.Dispatcher
	alarm alarm.Alarm
	yield procs.Yield

	program []*verbs.Waiter // of the program's goroutines that wait
	left    time.Duration   // when the last of them went
	grace   time.Duration   // the time after that for which the program counts as polling

	own     verbs.Waiter  // of the endpoint's goroutine
	serving bool          // the endpoint's goroutine polls
	always  bool          // it always does
	nudged  chan struct{} // has a token if it is to do something while it does not poll

	completing bool          // a completion is being handled
	clock      time.Duration // when something was done last
	stale      bool          // something came since
	woke       bool          // a goroutine was woken, and does what is due
}

// attended reports whether the program polls, or did within the last grace.
func (p *pollers) attended(now time.Duration) bool {
	return len(p.program) > 0 || now < p.left+p.grace
}

// enter and leave frame the wait of a goroutine of the program.
func (p *pollers) enter(w *verbs.Waiter) {
	p.program = append(p.program, w)
	if p.serving && !p.always {
		p.serving = false
		p.d.Wake(&p.own)
	}
}

func (p *pollers) leave(w *verbs.Waiter) {
	p.program = without(p.program, w)
	switch {
	case len(p.program) == 0 && !p.serving:
		p.left = p.clock
		p.alarm.Set(p.left+p.grace, p.left)
	case p.stale: // w may be the waiter that was woken to do what is due
		p.attend()
	}
}

// stays is called at the end of a call that took d and did not wait. That time does not count as
// absence of the program: a list of packets takes longer than grace on a slow host.
func (p *pollers) stays(d time.Duration) {
	if len(p.program) == 0 && !p.serving {
		p.left += d
	}
}

// graceEnds returns when the endpoint's goroutine has to poll unless the program waits, or Never.
// Once grace is over that goroutine was nudged. An alarm that fired until it polls would keep it
// from a processor for milliseconds: goroutines that timers wake run first.
func (p *pollers) graceEnds(now time.Duration) time.Duration {
	if end := p.left + p.grace; !p.serving && len(p.program) == 0 && now < end {
		return end
	}
	return alarm.Never
}

// beginCompletion begins the handling of a completion. A goroutine that was woken before there was
// anything to do, for a status for instance, does not do what becomes due now.
func (p *pollers) beginCompletion() {
	p.completing = true
	if !p.stale {
		p.woke = false
	}
}

// came records that a completion left something to do, which a goroutine is woken for unless one
// was.
func (p *pollers) came() {
	p.stale = true
	if !p.woke {
		p.attend()
	}
}

// did records that everything that is due at a time is being done.
func (p *pollers) did(now time.Duration) { p.woke, p.stale, p.clock = false, false, now }

// wake ends the wait of a goroutine, which then does what is due.
func (p *pollers) wake(w *verbs.Waiter) {
	if p.completing {
		w.Wake()
	} else {
		p.d.Wake(w)
	}
	p.woke = true
}

// nudge wakes the endpoint's goroutine.
func (p *pollers) nudge() {
	if p.serving {
		p.wake(&p.own)
		return
	}
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// attend wakes a goroutine that does what is due: one of the program that polls if there is
// one, else the endpoint's.
func (p *pollers) attend() {
	if n := len(p.program); n > 0 {
		p.wake(p.program[n-1])
		return
	}
	p.nudge()
	p.woke = true
}
