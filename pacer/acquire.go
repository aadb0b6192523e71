package pacer

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
)

// admissions makes the flows of acquisitions, which have no queue pair: two for each class, so
// that classes do not wait for each other, nor small acquisitions behind large ones.
func (p *Pacer) admissions() error {
	for n := len(p.admit); n < 2*p.s.Classes(); n++ {
		f, err := p.s.AddFlow(shaper.FlowConfig{Patient: true})
		if err != nil {
			return err
		}
		p.admit = append(p.admit, f)
	}
	return nil
}

// Credit is the right to solicit bytes, for programs that post by themselves.
type Credit struct {
	p   *Pacer
	sub shaper.Sub
}

// Acquire waits until n response bytes may be solicited. [Credit.Release] is due when
// they have come, or will not. It ends early with the context's error, or with
// [ErrClosed]. Whatever the threshold is, a class has at most as many credits out as Ord in
// [Config] says (128, unless it says otherwise), and as many again of up to Small bytes: for
// more bytes at a time, acquire longer credits or raise Ord.
func (p *Pacer) Acquire(ctx context.Context, class, n int) (Credit, error) {
	if err := ctx.Err(); err != nil {
		return Credit{}, err
	}
	return p.acquire(ctx, class, n, true)
}

// TryAcquire is [Pacer.Acquire] without waiting. It returns false if there is no credit now, or
// if others wait for it.
func (p *Pacer) TryAcquire(class, n int) (Credit, bool, error) {
	c, err := p.acquire(context.Background(), class, n, false)
	return c, c.p != nil, err
}

// acquire is Acquire. Without waits it returns no credit if there is none now.
func (p *Pacer) acquire(ctx context.Context, class, n int, waits bool) (Credit, error) {
	const op = "acquire from"
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Credit{}, opError(op, "pacer", ErrClosed)
	}
	line := 2 * class
	if n <= p.s.Small() {
		line++
	}
	if class < 0 || class >= len(p.admit)/2 {
		p.mu.Unlock()
		return Credit{}, opError(op, "pacer", fmt.Errorf("%w: class %d", ErrConfig, class))
	}
	now := p.now() // once: the clock is half of what an acquisition costs
	at, sub, granted, err := p.s.Admit(p.admit[line], shaper.Command{Kind: shaper.Get, Length: n, Class: class, Whole: true}, now)
	if err != nil {
		p.mu.Unlock()
		return Credit{}, opError(op, "pacer", err)
	}
	r := p.request(at)
	r.qp, r.sub = nil, noSub
	if granted {
		p.release()
		return Credit{p, sub}, nil
	}
	p.pump(now)
	if r = &p.requests[at]; r.sub != noSub {
		sub := r.sub
		select {
		case <-r.token: // that of this grant
		default:
		}
		p.release()
		return Credit{p, sub}, nil
	}
	if !waits {
		p.s.Cancel(at)
		p.unlock()
		return Credit{}, nil
	}
	if r.token == nil {
		r.token = make(chan struct{}, 1)
	}
	token := r.token
	p.release()
	select {
	case <-token:
		p.mu.Lock()
		sub := p.requests[at].sub
		p.mu.Unlock()
		return Credit{p, sub}, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.done:
		err = opError(op, "pacer", ErrClosed)
	}
	p.mu.Lock()
	if sub := p.requests[at].sub; sub != noSub { // granted meanwhile
		<-token
		p.s.Completed(sub, p.now())
	} else {
		p.s.Cancel(at)
	}
	p.unlock()
	return Credit{}, err
}

// Release gives a credit back. Twice is not an error.
func (c Credit) Release() {
	if c.p == nil {
		return
	}
	p := c.p
	p.mu.Lock()
	if p.s.Held() || p.s.Tunes() {
		now := p.now()
		p.s.Completed(c.sub, now)
		p.pump(now)
	} else { // nothing waits for it: what time it is makes no difference
		p.s.Completed(c.sub, 0)
		p.collect()
	}
	p.release()
}
