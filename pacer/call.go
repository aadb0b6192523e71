package pacer

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// call is a request that somebody waits for.
type call struct {
	waiter   verbs.Waiter
	wc       verbs.WC
	complete bool
}

// Read READs a peer's memory and waits for it. If the context ends before that, what
// was not posted of it is not any more; Read answers when the device is done with the
// rest, and until then the memory is the device's.
func (q *QP) Read(ctx context.Context, from verbs.Remote, into ...verbs.SGE) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n := 0
	for _, s := range into {
		n += int(s.Length)
	}
	w := work{op: opRead, at: from, sges: into, length: n, class: q.class}
	p := q.p
	c := &call{}
	var at shaper.Request
	p.mu.Lock()
	var err error
	for {
		if err = q.takes(); err == nil {
			q.check.Read(0, 0, from, into...)
			err = q.check.Err()
			q.check.Reset()
		}
		if err == nil {
			at, err = q.submit(&w, c, p.now())
			q.flush()
		}
		q.share()
		if !errors.Is(err, verbs.ErrQueueFull) {
			break
		}
		if err := q.awaitRoom(ctx); err != nil {
			p.unlock()
			return err
		}
	}
	p.unlock()
	if err != nil {
		return opError("READ on", q.name, err)
	}
	err = q.cq.d.Wait(ctx, &c.waiter)
	if err != nil && !c.waiter.Woken() {
		p.mu.Lock()
		if !c.waiter.Woken() {
			p.s.Cancel(at)
		}
		p.unlock()
		if lost := q.cq.d.Wait(context.WithoutCancel(ctx), &c.waiter); lost != nil {
			return opError("READ on", q.name, lost)
		}
	}
	p.mu.Lock()
	closed := q.closed
	p.mu.Unlock()
	switch {
	case c.complete:
		return nil
	case closed:
		return opError("READ on", q.name, ErrClosed)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return opError("READ on", q.name, c.wc.Err())
}
