//go:build linux

package lockoffload_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
)

const hostLease = 3 * time.Second

func requireHosts(t *testing.T) {
	lab.RequireHosts(t, 3)
}

// A host dies that is in the middle of everything at once: in each form after
// each request, with a WRITE half done, with a chain at the agent, and in
// operations of all forms on slots that others use too. The others go on; within
// three leases they have all its locks, and find what was written whole.
func TestOnHostsHolderIsKilled(t *testing.T) {
	requireHosts(t)
	rounds := 1
	if !testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			if round > 0 {
				require.NoError(t, lab.Host(1).Start(within(t, stuck)))
			}
			killHolder(t, rand.New(rand.NewPCG(uint64(round), 1)))
		})
	}
}

// left is a slot in which the victim stopped.
type left struct {
	what    string
	slot    int
	changed bool
	swap    bool
}

// tally counts what workers have added.
type tally struct {
	mu            sync.Mutex
	done, unknown map[bool]uint64 // by whether in private copies
	longest       time.Duration
}

func newTally() *tally { return &tally{done: map[bool]uint64{}, unknown: map[bool]uint64{}} }

// add orders one addition and reports whether the host is there to do another.
func (y *tally) add(w *worker, form string, slot int) bool {
	began := time.Now()
	a, err := w.do(order{Do: "add", Form: form, Slot: slot})
	y.mu.Lock()
	defer y.mu.Unlock()
	swap := form == "swap"
	switch {
	case err != nil || a.Outcome == unknown:
		y.unknown[swap]++
	case a.Outcome == changed:
		y.done[swap]++
		y.longest = max(y.longest, time.Since(began))
	}
	return err == nil && a.Err == ""
}

// slowest returns how long the longest addition took.
func (y *tally) slowest() time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.longest
}

// String may be called while there are more additions.
func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return fmt.Sprintf("%v additions, the longest took %v", y.done, y.longest)
}

func (y *tally) check(t *testing.T, ctx context.Context, a *actor, slot int) {
	t.Helper()
	for _, swap := range []bool{false, true} {
		n, err := a.count(ctx, slot, swap)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, y.done[swap])
		require.LessOrEqual(t, n, y.done[swap]+y.unknown[swap])
	}
}

func killHolder(t *testing.T, rng *rand.Rand) {
	ctx := within(t, stuck)
	g := newTarget(t, hostLease)
	near := g.actor(t, ctx, 0, 1)
	bystander := workers(t, ctx, 2, 1)[0]
	victims := workers(t, ctx, 1, 5)

	// What the others do meanwhile, in slot 0; slot 1 they share with the victim.
	const own, both, chained, first = 0, 1, 2, 3
	stop := make(chan struct{})
	var going, dying sync.WaitGroup
	others, mixed := newTally(), newTally()
	going.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if !others.add(bystander, addForms[i%len(addForms)], own) {
				t.Error("the other host's clients do not go on")
				return
			}
		}
	})
	lefts := stopEverywhere(t, victims[0], first)

	// A chain of the victim's is at the agent.
	held, _, err := near.c.Lock(ctx, chained, lockoffload.LockOptions{})
	require.NoError(t, err)
	accepted := g.agent.Stats().Accepted
	dying.Go(func() { _, _ = victims[4].do(order{Do: "chain", Slot: chained}) })
	require.Eventually(t, func() bool { return g.agent.Stats().Accepted > accepted }, stuck, time.Millisecond)

	for _, w := range victims[1:4] {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
		dying.Go(func() {
			for mixed.add(w, addForms[rng.IntN(len(addForms))], both) {
			}
		})
	}
	time.Sleep(300*time.Millisecond + time.Duration(rng.IntN(500_000))*time.Microsecond)
	killed := time.Now()
	require.NoError(t, lab.Host(1).Kill(ctx))
	dead := time.Now() // at the latest
	for _, w := range victims {
		w.conn.Close() // nothing will tell that it is gone
	}
	dying.Wait()

	var waiting sync.WaitGroup
	var mu sync.Mutex
	var fromKill, slowest time.Duration // the longest recovery, from before the kill and from after it
	for i, l := range append(lefts, left{what: "additions", slot: both}) {
		waiting.Go(func() {
			h, _, err := near.c.Lock(ctx, l.slot, lockoffload.LockOptions{Mode: []lockoffload.Mode{lockoffload.Exclusive, lockoffload.Fair}[i%2]})
			sinceKilled, sinceDead := time.Since(killed), time.Since(dead)
			if err == nil {
				err = h.Unlock(ctx)
			}
			if err != nil {
				t.Errorf("slot left after %s: %v", l.what, err)
			}
			mu.Lock()
			defer mu.Unlock()
			fromKill, slowest = max(fromKill, sinceKilled), max(slowest, sinceDead)
		})
	}
	waiting.Wait()
	t.Logf("%d ways to die; all recovered after %.2f leases; other clients: %v",
		len(lefts), slowest.Seconds()/hostLease.Seconds(), others)
	require.Less(t, slowest, 3*hostLease+others.slowest(), "and what a busy host needs for an addition")
	require.Greater(t, fromKill, hostLease, "not before its lease was over")

	for _, l := range lefts {
		n, err := near.count(ctx, l.slot, l.swap)
		require.NoError(t, err, l.what)
		require.Equal(t, l.changed, n == 1, "%s: counter %d", l.what, n)
		form := "update"
		if l.swap {
			form = "swap"
		}
		got, before, err := near.add(ctx, form, l.slot)
		require.NoError(t, err, l.what)
		require.Equal(t, changed, got)
		require.Equal(t, n, before)
	}
	mixed.check(t, ctx, near, both)
	require.Positive(t, mixed.done[false])

	// The agent still has the chain, and executes it once.
	require.NoError(t, held.Unlock(ctx))
	version := func() uint64 {
		_, res, err := near.c.Read(ctx, chained, make([]byte, hostLayout.Size))
		require.NoError(t, err)
		return res.Version
	}
	require.Eventually(t, func() bool { return version() == 1 }, stuck, 50*time.Millisecond)

	close(stop)
	going.Wait()
	others.check(t, ctx, near, own)
	require.Zero(t, others.unknown[false]+others.unknown[true])
	require.Greater(t, others.done[false], uint64(20))
	require.Less(t, others.longest, hostLease, "nobody waited for the dead one")
	require.EqualValues(t, 1, version())
}

// stopEverywhere has the victim stop in each form after each request.
func stopEverywhere(t *testing.T, w *worker, slot int) (lefts []left) {
	t.Helper()
	for _, form := range lockoffload.DyingForms {
		for n := 1; ; n++ {
			again := false
			for _, half := range []bool{false, true} {
				a, err := w.do(order{Do: "die", Form: form, Slot: slot, N: n, Half: half})
				require.NoError(t, err)
				require.Empty(t, a.Err, "%s after %d", form, n)
				lefts = append(lefts, left{fmt.Sprintf("%s, request %d, half: %v", form, n, half), slot, a.Changed, form == "swap"})
				slot++
				again = again || a.Died
			}
			if !again {
				break
			}
		}
	}
	return lefts
}

// The target dies and comes back with nothing in its memory. Its clients learn
// of it in bounded time, do not go on there, and bring nothing of before along.
func TestOnHostsTargetIsKilled(t *testing.T) {
	requireHosts(t)
	const host = 2
	ctx := within(t, stuck)
	e := openHost(t)
	up := func() {
		begin(t, ctx, host, "target", "")
		require.Eventually(t, func() bool {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(lab.Addrs()[host].String(), targetPort), time.Second)
			if err == nil {
				c.Close()
			}
			return err == nil
		}, stuck, 200*time.Millisecond)
	}
	if err := lab.Host(host).Start(ctx); err != nil {
		require.ErrorContains(t, err, "running")
	}
	up()
	const n = 3
	var actors []*actor
	for i := range uint64(n) {
		actors = append(actors, e.actor(t, ctx, host, 1+i))
	}
	_, _, info := e.place(t, ctx, host)
	held, _, err := actors[0].c.Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	var working sync.WaitGroup
	var killed atomic.Int64
	for i, a := range actors {
		for k, form := range addForms {
			working.Go(func() {
				var err error
				for err == nil {
					_, _, err = a.add(ctx, form, k%2*2) // those without the lock of before
				}
				took := time.Since(time.UnixMilli(killed.Load()))
				if killed.Load() == 0 || took > 2*hostLease {
					t.Errorf("client %d: %s ended %v after the target: %v", i, form, took, err)
				}
				if !anyOf(err, lockoffload.ErrBroken, lockoffload.ErrOutcomeUnknown, lockoffload.ErrLost) {
					t.Errorf("client %d: %s: %v", i, form, err)
				}
			})
		}
	}
	time.Sleep(time.Second)
	killed.Store(time.Now().UnixMilli())
	require.NoError(t, lab.Host(host).Kill(ctx))
	working.Wait()
	select {
	case <-held.Lost():
	case <-time.After(hostLease):
		t.Error("the holder was not told")
	}
	for _, a := range actors {
		began := time.Now()
		_, _, err := a.c.Lock(ctx, 3, lockoffload.LockOptions{})
		require.Error(t, err)
		_, err = a.agent.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		require.Error(t, err)
		require.Less(t, time.Since(began), time.Second, "known already")
	}

	require.NoError(t, lab.Host(host).Start(ctx))
	up()
	for i, a := range actors { // it is another target
		qp, cq, in := e.place(t, ctx, host)
		require.ErrorIs(t, a.c.Reconnect(ctx, qp, cq, in), lockoffload.ErrRestarted)
		actors[i] = e.actor(t, ctx, host, uint64(n+1+i))
	}
	for _, slot := range []int{0, 1, 2} { // nothing of before is there
		for _, swap := range []bool{false, true} {
			v, err := actors[0].count(ctx, slot, swap)
			require.NoError(t, err)
			require.Zero(t, v)
		}
	}
	// The old session info has an rkey that no longer exists. A client with it is refused.
	qp, cq, _ := e.place(t, ctx, host)
	stale, err := lockoffload.NewClient(lockoffload.Config{PD: e.pd, QP: qp, CQ: cq, Session: info})
	require.NoError(t, err)
	_, _, err = stale.Lock(ctx, 1, lockoffload.LockOptions{})
	require.True(t, anyOf(err, lockoffload.ErrBroken, lockoffload.ErrLost), "%v", err)
	require.NoError(t, stale.Close())
	// So is a client that held a lock, and unlocks it now.
	other, _, err := actors[1].c.Lock(ctx, 1, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)
	_, err = held.Write(ctx, 0, []byte("late"))
	require.True(t, anyOf(err, lockoffload.ErrBroken, lockoffload.ErrLost), "%v", err)
	require.Error(t, held.Unlock(ctx))
	require.NoError(t, other.Unlock(ctx))

	const each = 10
	for _, a := range actors {
		for _, form := range addForms {
			working.Go(func() {
				for range each {
					if _, _, err := a.add(ctx, form, 1); err != nil {
						t.Error(form, err)
						return
					}
				}
			})
		}
	}
	working.Wait()
	for swap, want := range map[bool]uint64{false: (uint64(len(addForms)) - 1) * n * each, true: n * each} {
		v, err := actors[2].count(ctx, 1, swap)
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
}

func anyOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(e error) bool { return errors.Is(err, e) })
}
