package server

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turns lets a few clients at a time connect by RDMA, in the order in which they came. Connections
// that are made all at once all take so long that each is given up and made again, so that none ever
// succeeds.
type turns struct {
	most int

	mu      sync.Mutex
	given   int
	waiting []*turn
}

// turn is one client's permission to connect, until it is over.
type turn struct {
	of    *turns
	begun chan struct{} // closed when it begins
	ended bool
	timer *time.Timer // that ends it
}

const (
	// longTurn is how long a turn keeps others waiting, at most.
	longTurn = 5 * time.Second
	// reassure is how often a waiting client is told that the server is there.
	reassure = time.Second
)

func newTurns() *turns { return &turns{most: max(4, 2*runtime.GOMAXPROCS(0))} }

// take waits for a turn, and calls tell every reassure meanwhile. An error is that of tell, or of ctx.
func (q *turns) take(ctx context.Context, tell func() error) (*turn, error) {
	t := q.ask()
	tick := time.NewTicker(reassure)
	defer tick.Stop()
	for {
		select {
		case <-t.begun:
			return t, nil
		default:
		}
		var err error
		select {
		case <-t.begun:
			return t, nil
		case <-tick.C:
			err = tell()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			t.over()
			return nil, err
		}
	}
}

// ask returns a turn that begins when it may.
func (q *turns) ask() *turn {
	t := &turn{of: q, begun: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, t)
	q.next()
	return t
}

// next begins the turns that may. q.mu must be held.
func (q *turns) next() {
	for q.given < q.most && len(q.waiting) > 0 {
		t := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.given++
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
	q.next()
}
