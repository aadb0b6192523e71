package dc

import (
	"cmp"
	"context"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Poll takes requests that have ended, at most len(cs), and returns their number.
// It never blocks, and does not allocate as long as nothing fails and no
// session begins or ends. Those of one target come in the order of posting, but
// for those that were canceled or had no time left; behind one that failed, those
// that were posted under the same session fail too.
func (i *Initiator) Poll(cs []Completion) (int, error) { return i.PollSpin(cs, 0) }

// PollSpin is Poll that looks up to spins times again in one crossing into C while
// there is nothing, like [verbs.CQ.PollSpin].
func (i *Initiator) PollSpin(cs []Completion, spins int) (int, error) {
	i.mu.Lock()
	if err := i.usable(); err != nil {
		i.mu.Unlock()
		return 0, opError("poll", "initiator", err)
	}
	if n := i.done.take(cs); n > 0 {
		i.unlock()
		return n, nil
	}
	i.polling++
	i.mu.Unlock()
	_, err := i.d.Poll(spins)
	i.mu.Lock()
	return i.polled(cs, err)
}

// polled moves requests that have ended to cs, at the end of a poll. mu must be held, and is released.
func (i *Initiator) polled(cs []Completion, err error) (int, error) {
	i.polling--
	n := i.done.take(cs)
	if n == 0 && err == nil {
		err = i.usable()
	}
	i.unlock()
	if n > 0 || err == nil {
		return n, nil
	}
	return 0, opError("poll", "initiator", err)
}

// PostPoll is Post and then PollSpin, in one crossing into C if the target is
// attached and has room: the fastest way to do one operation and wait for it. It
// returns the numbers of requests taken and of requests ended, which may well be
// 0.
func (i *Initiator) PostPoll(p *Peer, cs []Completion, spins int, rs ...Request) (posted, polled int, err error) {
	i.mu.Lock()
	posted, looked, found, err := i.give(p, rs, nil, max(spins, 0))
	if err != nil {
		i.mu.Unlock()
		found.Dispatch()
		i.mu.Lock()
		i.unlock()
		return posted, 0, err
	}
	i.polling++
	if !driver.DispatchOwn(found, i.d, i.own) {
		i.mu.Unlock()
		if looked {
			found.Dispatch()
		} else {
			_, err = i.d.Poll(spins)
		}
		i.mu.Lock()
	}
	polled, err = i.polled(cs, err)
	return posted, polled, err
}

// Wait is Poll until there is something. It parks the goroutine, and ends early
// with the context's error or with [ErrClosed]. With a context that has ended before, it
// takes nothing.
func (i *Initiator) Wait(ctx context.Context, cs []Completion) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, opError("wait for", "initiator", err)
	}
	if len(cs) == 0 {
		return 0, nil
	}
	var w *taker
	var waited error
	for {
		i.mu.Lock()
		err, n := i.usable(), 0
		if w != nil {
			i.takers = remove(i.takers, &w.Waiter)
			err = cmp.Or(waited, err, ctx.Err())
		}
		if w != nil || err == nil {
			n = i.done.take(cs)
		}
		if n > 0 || err != nil {
			i.putTaker(w)
			i.unlock()
			if n > 0 {
				return n, nil
			}
			return 0, opError("wait for", "initiator", err)
		}
		if w == nil {
			w = i.takeTaker(ctx)
		}
		w.Reset()
		i.takers = append(i.takers, &w.Waiter)
		i.unlock()
		if ctx.Err() == nil {
			waited = i.d.Wait(context.Background(), &w.Waiter)
		}
	}
}

// taker is a goroutine that waits for completions. To have the dispatcher listen to a
// context takes another goroutine for each wait; a taker is woken when its context ends,
// and waits again for the same context without preparing anything.
type taker struct {
	verbs.Waiter
	watched <-chan struct{}
	stop    func() bool
	next    *taker // that is not in use
}

// takeTaker returns one that is woken when the context ends.
func (i *Initiator) takeTaker(ctx context.Context) *taker {
	t := i.idle
	if t == nil {
		t = &taker{}
	} else {
		i.idle = t.next
	}
	if t.watched == ctx.Done() {
		return t
	}
	t.leave()
	if t.watched = ctx.Done(); t.watched != nil {
		t.stop = context.AfterFunc(ctx, func() { i.d.Wake(&t.Waiter) })
	}
	return t
}

// putTaker keeps it for the next wait, as long as there may be one.
func (i *Initiator) putTaker(t *taker) {
	switch {
	case t == nil:
	case i.open():
		t.next, i.idle = i.idle, t
	default:
		t.leave()
	}
}

// leave ends the function registered with the context.
func (t *taker) leave() {
	if t.stop != nil {
		t.stop()
	}
	t.stop, t.watched = nil, nil
}

func remove(ws []*verbs.Waiter, w *verbs.Waiter) []*verbs.Waiter {
	if k := slices.Index(ws, w); k >= 0 {
		return slices.Delete(ws, k, k+1)
	}
	return ws
}
