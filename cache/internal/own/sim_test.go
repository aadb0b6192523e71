package own

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// faults lets everything happen that the package comment allows, until it is quiet.
func (w *world) faults() {
	servers := len(w.servers)
	for range 8 + w.any(12) {
		at := w.upTo(quiet - time.Second)
		w.After(at, func() {
			d := min(100*time.Millisecond+w.upTo(6*time.Second), quiet-w.Now)
			a, b := w.any(len(w.hosts)+1)-1, w.any(len(w.hosts))
			i := w.any(servers)
			switch w.any(12) {
			case 0, 1:
				w.freeze(b, d)
			case 2:
				w.cut(a, b, d)
				w.cut(b, a, d)
			case 3:
				w.cut(a, b, d)
			case 4:
				w.cut(b, a, d)
			case 5: // from all others
				for other := -1; other < len(w.hosts); other++ {
					w.cut(i, other, d)
					w.cut(other, i, d)
				}
			case 6: // from etcd alone
				w.cut(i, atEtcd, d)
				w.cut(atEtcd, i, d)
			case 7:
				w.etcd.lost = max(w.etcd.lost, w.Now+d)
			case 8:
				w.crash(i, w.upTo(3*time.Second))
			case 9: // an owner stands still until others want to take over; then etcd is lost
				p := w.etcd.placement
				if owner := p.Member(p.Shards[w.any(shards)].Owner); owner != nil {
					w.freeze(hostOf(owner.Life), min(ttl+w.upTo(ttl/2), quiet-w.Now))
					w.After(ttl+w.upTo(ttl/2), func() { w.etcd.lost = max(w.etcd.lost, min(w.Now+d, quiet)) })
				}
			case 10:
				w.drain(i, d)
			case 11:
				if w.oneIn(3) {
					for i := range servers {
						w.crash(i, w.upTo(time.Second))
					}
				}
			}
		})
	}
	for i := range w.hosts {
		var stalls func()
		stalls = func() {
			if w.Now < quiet-ttl {
				w.stall(i)
				w.After(w.upTo(2*ttl), stalls)
			}
		}
		w.After(w.upTo(ttl), stalls)
	}
}

// drain has a server drain for some time.
func (w *world) drain(i int, d time.Duration) {
	for _, on := range []bool{true, false} {
		w.After(d, func() {
			if next, err := w.etcd.placement.Drain(w.servers[i].life, on); err == nil {
				w.etcd.placement = next
			}
		})
		d += time.Second
	}
}

// simulate runs a world with a seed to its end.
func simulate(seed uint64, f flaws) *world {
	w := newWorld(seed, f, 2+int(seed%4), 3, true)
	w.faults()
	w.Run(length)
	if err := w.check(); err != nil {
		w.Wrong("%v", err)
	}
	if w.Err == nil {
		w.served()
	}
	return w
}

// served checks that after the faults each shard has an owner, which clients have found and READ.
func (w *world) served() {
	reads, sets := make(map[int]int), make(map[int]int)
	for _, o := range w.history {
		switch {
		case o.call < length-12*time.Second:
		case o.what[0] == 'R':
			reads[o.shard]++
		case o.what[len(o.what)-2] == 'e' && o.what[len(o.what)-3] == 'u':
			sets[o.shard]++
		}
	}
	for i := range shards {
		s := w.etcd.placement.Shards[i]
		if reads[i] == 0 || sets[i] == 0 {
			w.Wrong("in the end shard %d of owner %d in epoch %d is READ %d times and set %d times", i, s.Owner, s.Epoch, reads[i], sets[i])
		}
	}
	for _, s := range w.servers {
		if !s.alive || s.m.Number() == 0 {
			w.Wrong("in the end %v is no member", s.life)
		}
	}
}

// worlds simulates until one is wrong, enough have run and the time is over, on all processors.
func worlds(seed uint64, f flaws, limit int, until time.Time) (sum world, seeds int) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	var next atomic.Int64
	for range 2 {
		wait.Go(func() {
			for {
				i := next.Add(1) - 1
				if int(i) >= limit && time.Now().After(until) {
					return
				}
				w := simulate(seed+uint64(i), f)
				mu.Lock()
				seeds++
				if w.Err != nil && sum.Err == nil {
					sum.Wrong("world %d (GOVERBS_SEED=%d): %w", i, seed+uint64(i), w.Err)
				}
				sum.add(w)
				stop := sum.Err != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wait.Wait()
	return sum, seeds
}

func (w *world) add(o *world) {
	w.takeovers += o.takeovers
	w.successions += o.successions
	w.joins += o.joins
	w.moves += o.moves
	w.promised += o.promised
	w.hits += o.hits
	w.calls += o.calls
	w.sets += o.sets
	w.refused += o.refused
	w.lost += o.lost
}

// Nothing goes back, and everything is served in the end, whatever happens in between. GOVERBS_CACHE_SECONDS
// is how long it takes (the long version: a minute).
func TestNothingGoesBack(t *testing.T) {
	length := 3 * time.Second
	if !testing.Short() {
		length = time.Minute
	}
	if s := os.Getenv("GOVERBS_CACHE_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		length = time.Duration(n) * time.Second
	}
	sum, n := worlds(testseed.New(t), flaws{}, 20, time.Now().Add(length))
	t.Logf("%d worlds: %d takeovers, %d of them by a next life, %d joins, %d moves, %d deadlines by promises; %d READs, %d calls, %d sets, %d refused; %d shards entered empty",
		n, sum.takeovers, sum.successions, sum.joins, sum.moves, sum.promised, sum.hits, sum.calls, sum.sets, sum.refused, sum.lost)
	require.NoError(t, sum.Err)
	require.Positive(t, sum.takeovers)
	require.Positive(t, sum.moves)
	require.Positive(t, sum.promised)
}

// The test above sees what a caller does wrong. The seeds are the same in each run; one flaw shows in one world of some
// thousand, and begins shortly before it.
func TestSimulationFindsFlaws(t *testing.T) {
	first := map[string]uint64{"a takeover compares no revision": 1830}
	for name, f := range map[string]flaws{
		"READs are not checked":                  {unchecked: true},
		"old records are kept":                   {unpurged: true},
		"records stay where they were":           {undropped: true},
		"closed shards are changed":              {unclosed: true},
		"times are those of receipt":             {receipt: true},
		"a takeover compares no revision":        {revisionless: true},
		"transactions do not compare placements": {baseless: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sum, n := worlds(first[name], f, 2000, time.Time{})
			require.Error(t, sum.Err)
			t.Logf("after %d worlds: %v", n, sum.Err)
		})
	}
}

// A seed repeats a world.
func TestSeedRepeats(t *testing.T) {
	seed := testseed.New(t)
	a, b := simulate(seed, flaws{}), simulate(seed, flaws{})
	require.Equal(t, a.Trace, b.Trace)
	require.Equal(t, a.history, b.history)
}
