package server

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turns lets a few clients at a time connect by RDMA. Connections that are made all at once all take so
// long that each is given up and made again, so that none ever succeeds.
//
// The next turn goes to the tenant with the fewest, and within a tenant to the client that came first. A
// tenant without a turn gets one at once, so connections of one tenant that are silent during their turns
// delay no other tenant's first client.
type turns struct {
	most int

	mu      sync.Mutex
	given   int
	each    map[string]int // tenants' turns that have begun
	waiting []*turn        // in the order in which they came
}

// turn is one client's permission to connect, until it is over.
type turn struct {
	of     *turns
	tenant string
	begun  chan struct{} // closed when it begins
	ended  bool
	timer  *time.Timer // that ends it
}

const (
	// longTurn is how long a turn keeps others waiting, at most.
	longTurn = 5 * time.Second
	// reassure is how often a waiting client is told to wait. It is first told
	// after briefly: its caller may have little time, in which it can use TCP.
	reassure = time.Second
	briefly  = 100 * time.Millisecond
)

func newTurns(most int) *turns { return &turns{most: most, each: map[string]int{}} }

// atOnce is how many clients connect by RDMA at a time, if they belong to one tenant.
func atOnce() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

// take waits for a turn of a tenant's client: see await.
func (q *turns) take(ctx context.Context, tenant string, w waiter) (*turn, error) {
	t := q.ask(tenant)
	if err := await(ctx, t.begun, w); err != nil {
		t.over()
		return nil, err
	}
	return t, nil
}

// waiter is a client that may have to wait.
type waiter interface {
	// Wait tells it to.
	Wait() error
	// Attend calls f with a context that ends when the client has gone.
	Attend(ctx context.Context, f func(context.Context) error) error
}

// await returns when ready is closed, and tells the client after briefly, and then every reassure, to wait. It
// returns an error when the client has gone or ctx ends.
func await(ctx context.Context, ready <-chan struct{}, w waiter) error {
	select {
	case <-ready:
		return nil
	default:
	}
	return w.Attend(ctx, func(ctx context.Context) error {
		tick := time.NewTicker(briefly)
		defer tick.Stop()
		for {
			select {
			case <-ready:
				return nil
			case <-tick.C:
				tick.Reset(reassure)
				if err := w.Wait(); err != nil {
					return err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// ask returns a turn that begins when it may.
func (q *turns) ask(tenant string) *turn {
	t := &turn{of: q, tenant: tenant, begun: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, t)
	q.next()
	return t
}

// next begins the turns that may begin. q.mu must be held.
func (q *turns) next() {
	for len(q.waiting) > 0 {
		first := 0
		for i, t := range q.waiting {
			if q.each[t.tenant] < q.each[q.waiting[first].tenant] {
				first = i
			}
		}
		t := q.waiting[first]
		if q.given >= q.most && q.each[t.tenant] > 0 {
			return
		}
		q.waiting = slices.Delete(q.waiting, first, first+1)
		q.given++
		q.each[t.tenant]++
		t.timer = time.AfterFunc(longTurn, t.over)
		close(t.begun)
	}
}

// over ends a turn, or gives it up before it has begun. It may be called more than once, and on nil.
func (t *turn) over() {
	if t == nil {
		return
	}
	q := t.of
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return
	}
	t.timer.Stop()
	q.given--
	if q.each[t.tenant]--; q.each[t.tenant] == 0 {
		delete(q.each, t.tenant)
	}
	q.next()
}
