package dc

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// parker waits for a completion queue or for a wake-up of this program's own,
// whichever is first. Waiting again with the same context does not allocate.
type parker struct {
	cq *verbs.CQ

	mu     sync.Mutex
	parent <-chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
}

// begin must come before the look at what wake announces; what it answers is
// for wait.
func (p *parker) begin(ctx context.Context) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.parent != ctx.Done() || p.ctx.Err() != nil {
		if p.cancel != nil {
			p.cancel()
		}
		p.parent = ctx.Done()
		p.ctx, p.cancel = context.WithCancel(ctx)
	}
	return p.ctx
}

// wait may answer nothing: then look again. An error is the queue's, or the
// caller's context's.
func (p *parker) wait(ctx, inner context.Context, wcs []verbs.WC) (int, error) {
	n, err := p.cq.Wait(inner, wcs)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		return 0, nil
	}
	return n, err
}

func (p *parker) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
}
