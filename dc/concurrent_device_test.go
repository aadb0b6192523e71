//go:build linux

package dc_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestSeveralPollers: whichever goroutine polls, each request ends with its own result. Every
// fifth one is for memory that is not there, and those behind it fail too.
func TestSeveralPollers(t *testing.T) { onBackEnds(t, severalPollers) }

func severalPollers(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 3})
	var peers []*dc.Peer
	for range 4 {
		peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{}), 0))
	}
	const each = 50
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var mu sync.Mutex
	got := map[uint64]error{}
	last := map[*dc.Peer]uint64{}
	var all sync.WaitGroup
	enough := make(chan struct{})
	stop := sync.OnceFunc(func() { close(enough) }) // several may see the last one
	for n := range 3 {
		all.Go(func() {
			var cs [1]dc.Completion
			for {
				select {
				case <-enough:
					return
				default:
				}
				var k int
				var err error
				if n == 0 {
					if k, err = i.Poll(cs[:]); k == 0 {
						time.Sleep(20 * time.Microsecond) // emulated CPUs are few, and this is not what is to be slow
					}
				} else {
					wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					k, err = i.Wait(wait, cs[:])
					cancel()
				}
				mu.Lock()
				if k == 1 {
					if _, twice := got[cs[0].ID]; twice {
						t.Errorf("request %d ended twice", cs[0].ID)
					}
					got[cs[0].ID] = cs[0].Err
					last[cs[0].Peer]++
				}
				over := len(got) == each*len(peers)
				mu.Unlock()
				if over {
					stop()
					return
				}
				if err != nil && ctx.Err() != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	bad := func(id uint64) bool { return id%5 == 4 }
	for k := range uint64(each) {
		for n, p := range peers {
			r := a.write(uint64(n)*each+k, b, 4096*n)
			if bad(r.ID) {
				r.Remote.RKey ^= 0xff00
			}
			_, err := i.Post(p, r)
			require.NoError(t, err)
		}
	}
	all.Wait()
	require.Len(t, got, each*len(peers))
	for id, err := range got {
		if bad(id) {
			require.Error(t, err, "request %d", id)
		} else if err != nil {
			require.ErrorIs(t, err, dc.ErrSession, "request %d", id)
		}
	}
}

// TestDoIsShared: any number of goroutines, each with its own reply.
func TestDoIsShared(t *testing.T) { onBackEnds(t, doIsShared) }

func doIsShared(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 4})
	var peers []*dc.Peer
	for range 3 {
		peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{}), 0))
	}
	other := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	for n := range 64 {
		binary.BigEndian.PutUint64(b.mr.Bytes()[8*n:], uint64(1000+n))
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var all sync.WaitGroup
	for g := range 6 {
		all.Go(func() {
			for k := range 30 {
				word := (g*31 + k*7) % 64
				at := 8 * (64*g + word)
				err := i.Do(ctx, peers[(g+k)%len(peers)], dc.Request{Op: dc.Read, Local: a.mr.SGE(at, 8), Remote: b.mr.Region().At(uint64(8 * word))})
				if err != nil || binary.BigEndian.Uint64(a.mr.Bytes()[at:]) != uint64(1000+word) {
					t.Errorf("goroutine %d read %d of word %d: %v", g, binary.BigEndian.Uint64(a.mr.Bytes()[at:]), word, err)
				}
			}
		})
	}
	all.Go(func() {
		for range 20 {
			bad := a.write(0, b, 0)
			bad.Remote.RKey ^= 0xff00
			if err := i.Do(ctx, other, bad); err == nil {
				t.Error("a request for memory that is not there succeeded")
			}
			time.Sleep(time.Millisecond)
		}
	})
	all.Wait()
	n, err := i.Poll(make([]dc.Completion, 1))
	require.NoError(t, err)
	require.Zero(t, n, "what Do does never comes to Poll")
}

// TestMoreThanDepth requests for an attached target that has nothing to do.
func TestMoreThanDepth(t *testing.T) { onBackEnds(t, moreThanDepth) }

func moreThanDepth(t *testing.T, a, b *host) {
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 4})
	p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	do(t, i, p, a.write(1, b, 0))
	var rs []dc.Request
	for k := range uint64(50) {
		rs = append(rs, a.write(k, b, 0))
	}
	do(t, i, p, rs...)
}

// TestSharedQueues: initiators with one control queue and one completion queue,
// whichever polls.
func TestSharedQueues(t *testing.T) {
	a, b := newHosts(t)
	ctl, err := dc.NewControl(dc.ControlConfig{PD: a.pd, GID: a.gid})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctl.Close()) })
	cq, err := a.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	target := b.target(t, dc.TargetConfig{Responders: 2})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		i := a.initiator(t, dc.InitiatorConfig{Control: ctl, CQ: cq, Contexts: 1, Quota: 4})
		p := resolve(t, i, target, 0)
		require.ErrorIs(t, ctl.Close(), dc.ErrInUse)
		all.Go(func() {
			for k := range 20 {
				if err := i.Do(ctx, p, a.write(uint64(k), b, 0)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestInitiatorThatDoesNotPoll loses its responder context to one that waits for it,
// though its keep-alives come.
func TestInitiatorThatDoesNotPoll(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Responders: 1, Recall: 500 * time.Millisecond})
	deaf := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolve(t, deaf, target, 0)
	do(t, deaf, p, a.write(1, b, 0))
	_, err := deaf.Post(p, a.write(2, b, 0))
	require.NoError(t, err)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	begin := time.Now()
	require.NoError(t, i.Do(ctx, resolve(t, i, target, 0), a.write(3, b, 0)))
	t.Logf("served after %v; %+v", time.Since(begin), target.Stats())
	require.Less(t, time.Since(begin), 5*time.Second)
	require.EqualValues(t, 1, target.Stats().Reclaimed)
}

// TestDeadTargetsCostNothing: more of them than contexts, and the live one is
// served as if they were not there.
func TestDeadTargetsCostNothing(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, ConnectTimeout: 3 * time.Second})
	live := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	other := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	var dead []*dc.Peer
	for range 6 {
		target := b.target(t, dc.TargetConfig{})
		dead = append(dead, resolve(t, i, target, 0))
		require.NoError(t, target.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range dead {
		all.Go(func() {
			if err := i.Do(ctx, p, a.write(1, b, 0)); err == nil {
				t.Error("a dead target has answered")
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	var worst time.Duration
	begin := time.Now()
	for k := 0; time.Since(begin) < 4*time.Second; k++ {
		one := time.Now()
		require.NoError(t, i.Do(ctx, []*dc.Peer{live, other}[k%2], a.write(1, b, 0)))
		worst = max(worst, time.Since(one))
	}
	all.Wait()
	t.Logf("worst %v; %+v", worst, i.Stats())
	require.Less(t, worst, 1200*time.Millisecond, "six silent targets hold two contexts for 150 ms each, if they do")
}
