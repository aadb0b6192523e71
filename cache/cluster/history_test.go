//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cache"
)

// history sets keys to rising numbers, one after the other, and reads them in many ways meanwhile. It reports each value
// that is older than a change that was acknowledged before the read began.
type history struct {
	t       *testing.T
	ctx     context.Context
	stop    context.CancelFunc
	keys    [][]byte
	acked   []atomic.Int64
	sets    atomic.Int64
	reads   atomic.Int64
	running sync.WaitGroup
}

func (r *rig) history(c *cache.Cluster, keys [][]byte) *history {
	ctx, stop := context.WithCancel(r.ctx)
	h := &history{t: r.t, ctx: ctx, stop: stop, keys: keys, acked: make([]atomic.Int64, len(keys))}
	h.running.Go(func() {
		for n := int64(1); ctx.Err() == nil; n++ {
			for i := range keys {
				if c.Set(ctx, keys[i], cache.Item{Value: strconv.AppendInt(nil, n, 10)}, 0) != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				h.acked[i].Store(n)
				h.sets.Add(1)
			}
		}
	})
	return h
}

// reader reads with get, and with many keys at once, until the history ends.
func (h *history) reader(name string, c cache.Cache) {
	h.running.Go(func() {
		var results []cache.Result
		before := make([]int64, len(h.keys))
		for h.ctx.Err() == nil {
			for i := range h.keys {
				before[i] = h.acked[i].Load()
				it, err := c.Get(h.ctx, h.keys[i])
				h.check(name+" get", i, before[i], it, err)
			}
			for i := range h.keys {
				before[i] = h.acked[i].Load()
			}
			results = c.GetMulti(h.ctx, h.keys, results)
			for i := range h.keys {
				h.check(name+" multi", i, before[i], results[i].Item, results[i].Err)
			}
		}
	})
}

func (h *history) check(name string, i int, before int64, it cache.Item, err error) {
	if err != nil {
		if !errors.Is(err, cache.ErrNotFound) && !errors.Is(err, cache.ErrMoved) && !errors.Is(err, cache.ErrUnavailable) && h.ctx.Err() == nil {
			h.t.Errorf("%s of %q: %v", name, h.keys[i], err)
		}
		time.Sleep(100 * time.Microsecond)
		return
	}
	h.reads.Add(1)
	if n, err := strconv.ParseInt(string(it.Value), 10, 64); err != nil || n < before {
		h.t.Errorf("%s of %q: %q after the change to %d was acknowledged", name, h.keys[i], it.Value, before)
		h.stop()
	}
}

// goesOn waits until so many more changes are acknowledged.
func (h *history) goesOn(changes int64) {
	h.t.Helper()
	for end, till := time.Now().Add(stuck), h.sets.Load()+changes; h.sets.Load() < till; time.Sleep(time.Millisecond) {
		if time.Now().After(end) || h.ctx.Err() != nil {
			h.t.Fatalf("%d changes are missing", till-h.sets.Load())
		}
	}
}

func (h *history) end() {
	h.stop()
	h.running.Wait()
	h.t.Logf("%d changes and %d reads", h.sets.Load(), h.reads.Load())
}
