package own

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// settled returns a world without losses after its servers have joined and have their shares.
func settled(t *testing.T, seed uint64, servers int) *world {
	t.Helper()
	w := newWorld(seed, flaws{}, servers, 3, false)
	w.run(t, 8*time.Second)
	require.Empty(t, w.etcd.placement.Plan())
	for i := range shards {
		require.NotNil(t, w.owner(i))
	}
	return w
}

func (w *world) run(t *testing.T, d time.Duration) {
	t.Helper()
	w.Run(w.Now + d)
	require.NoError(t, w.Err)
	require.NoError(t, w.check())
}

// owner returns the server that executes calls of a shard, or nil.
func (w *world) owner(i int) *simServer {
	for _, s := range w.servers {
		if s.alive && s.m.Placement() != nil {
			if _, ok := s.serves(i, true); ok {
				return s
			}
		}
	}
	return nil
}

// servedAgain runs until all shards have owners again, and returns how long that took.
func (w *world) servedAgain() time.Duration {
	begun := w.Now
	served := func() bool {
		for i := range shards {
			if w.owner(i) == nil {
				return false
			}
		}
		return true
	}
	for !served() && w.Now < begun+time.Minute {
		w.Run(w.Now + time.Millisecond)
	}
	return w.Now - begun
}

// slowly is how long a time of a server's clock may take, and some messages.
func slowly(d time.Duration) time.Duration {
	return d + d/time.Duration(worse.Drift) + 50*time.Millisecond
}

// A dead server's shards are served after 1.1 TTL and two beats, and what messages take.
func TestTimeOfTakeover(t *testing.T) {
	for seed := range uint64(20) {
		w := settled(t, seed, 3)
		w.run(t, w.upTo(time.Second))
		w.crash(w.owner(w.any(shards)).host, time.Hour)
		took := w.servedAgain()
		require.Less(t, took, slowly(worse.Wait()+2*worse.Beat()))
		require.Greater(t, took, ttl-worse.Beat())
		w.run(t, time.Second)
	}
}

// If etcd dies with the server until it has elected another leader, the time does not come on top.
func TestTimeOfTakeoverBesideElection(t *testing.T) {
	for seed := range uint64(40) {
		w := settled(t, seed, 3)
		w.run(t, w.upTo(time.Second))
		election := ttl/3 + w.upTo(ttl/3)
		w.crash(w.owner(w.any(shards)).host, time.Hour)
		w.etcd.lost = w.Now + election
		took := w.servedAgain()
		require.Less(t, took, slowly(max(election+worse.Grace(), worse.Wait())+2*worse.Beat()), "seed %d", seed)
		w.run(t, time.Second)
	}
}

// Without etcd everything goes on as long as all servers do.
func TestEtcdIsLost(t *testing.T) {
	for seed := range uint64(5) {
		w := settled(t, seed, 1+int(seed))
		w.run(t, time.Second)
		refused, lost, ops := w.refused, w.lost, len(w.history)
		w.etcd.lost = w.Now + time.Minute
		w.run(t, 65*time.Second)
		require.Equal(t, refused, w.refused)
		require.Equal(t, lost, w.lost)
		require.Zero(t, w.takeovers)
		require.Greater(t, len(w.history), ops+1000)
	}
}

// One that dies meanwhile ends that for all: it may be alive elsewhere.
func TestEtcdAndServerAreLost(t *testing.T) {
	w := settled(t, 1, 3)
	w.etcd.lost = w.Now + time.Minute
	w.run(t, 10*time.Second)
	w.crash(0, time.Hour)
	w.run(t, 5*time.Second)
	for i := range shards {
		require.Nil(t, w.owner(i))
	}
	w.run(t, 60*time.Second)
	for i := range shards {
		require.NotNil(t, w.owner(i), "etcd is back, and others have taken over")
	}
}

// When no server has reached etcd or another one for longer than a takeover takes, and all come back, none loses
// its shards. One that does not come back is taken over as after other faults.
func TestOutageOfAll(t *testing.T) {
	for seed := range uint64(20) {
		w := settled(t, seed, 2+int(seed%3))
		w.run(t, w.upTo(time.Second))
		lost, outage := w.lost, worse.Wait()+w.upTo(3*ttl)
		for a := atEtcd; a < len(w.servers); a++ {
			for b := atEtcd; b < len(w.servers); b++ {
				w.cut(a, b, outage)
			}
		}
		w.run(t, outage+3*ttl)
		require.Zero(t, w.takeovers)
		require.Equal(t, lost, w.lost)
		for i := range shards {
			require.NotNil(t, w.owner(i))
		}

		for a := atEtcd; a < len(w.servers); a++ {
			for b := atEtcd; b < len(w.servers); b++ {
				w.cut(a, b, outage)
			}
		}
		w.crash(0, time.Hour)
		w.run(t, outage+3*ttl)
		require.Equal(t, 1, w.takeovers)
	}
}

// A server that has no connection to etcd keeps its shards by promises. They do not keep others from
// taking over what a third one had.
func TestOneWithoutEtcd(t *testing.T) {
	w := settled(t, 2, 4)
	kept := w.etcd.placement.Number(w.servers[0].life)
	w.cut(0, atEtcd, time.Hour)
	w.run(t, 10*time.Second)
	require.Zero(t, w.takeovers)
	w.crash(1, time.Hour)
	w.run(t, 10*time.Second)
	require.Equal(t, 1, w.takeovers)
	require.Equal(t, kept, w.etcd.placement.Number(w.servers[0].life))
	for i := range shards {
		require.NotNil(t, w.owner(i))
	}
}

// A drain moves all shards away, and back again, with their records and without a failed READ.
func TestDrainLosesNothing(t *testing.T) {
	for seed := range uint64(5) {
		w := settled(t, seed, 2+int(seed%3))
		lost := w.lost
		for _, drain := range []bool{true, false} {
			next, err := w.etcd.placement.Drain(w.servers[0].life, drain)
			require.NoError(t, err)
			w.etcd.placement = next
			w.run(t, 5*time.Second)
			require.Empty(t, w.etcd.placement.Plan())
			for i := range shards {
				if drain {
					require.NotEqual(t, 0, w.owner(i).host)
				}
			}
		}
		require.Equal(t, lost, w.lost)
		require.Zero(t, w.takeovers)
	}
}
