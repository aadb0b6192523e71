//go:build linux

package dc_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
)

// TestControlQueueRestarts when the device gives it up, at either end, again and
// again, and also while messages are under way. Messages go on under its number.
func TestControlQueueRestarts(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Retransmit: 10 * time.Millisecond})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	do(t, i, p, a.write(0, b, 0))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for n := range 8 {
		if n%2 == 0 {
			require.NoError(t, i.BreakControl())
		} else {
			require.NoError(t, target.BreakControl())
		}
		if n >= 4 {
			require.NoError(t, i.Forget(p)) // at once, and what it says is lost
			p = resolve(t, i, target, 0)
		}
		require.NoError(t, i.Do(ctx, p, a.write(uint64(n), b, 0)))
		require.NoError(t, i.Detach(p))
		require.NoError(t, i.Do(ctx, p, a.write(uint64(n), b, 0)))
	}
	require.Zero(t, i.Stats().Failures)
}

// TestMessageFromBeforeRestart: a message that was polled before the control queue has
// restarted is lost. All receives are posted since, its own too.
func TestMessageFromBeforeRestart(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	target := b.target(t, dc.TargetConfig{})
	p := resolve(t, i, target, 0)
	receives, err := target.HoldOverRestart(func() {
		_, err := i.Post(p, a.write(1, b, 0))
		require.NoError(t, err)
	})
	require.NoError(t, err)
	require.Zero(t, receives)
	require.NoError(t, wait(t, i, 1)[0].Err, "it is sent again")
}

// TestUnreachableHosts: to look for a host that is not there takes the kernel a
// second, in which messages to others go out.
func TestUnreachableHosts(t *testing.T) {
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 10, ConnectTimeout: time.Second})
	target := b.target(t, dc.TargetConfig{})
	nobody := target.Address()
	for n := range byte(6) {
		nobody.GID[15] = 200 + n
		p, err := i.Resolve(nobody, 0)
		require.NoError(t, err)
		_, err = i.Post(p, a.write(1, b, 0))
		require.NoError(t, err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	require.NoError(t, i.Do(ctx, resolve(t, i, target, 0), a.write(2, b, 0)))
	t.Logf("after %v", time.Since(begin))
	require.Less(t, time.Since(begin), time.Second)
	for _, c := range wait(t, i, 6) {
		require.ErrorIs(t, c.Err, dc.ErrUnreachable)
	}
}

// TestControlClosesAfterInitiators that share it have said their last word, not
// before.
func TestControlClosesAfterInitiators(t *testing.T) {
	a, b := newHosts(t)
	var targets []*dc.Target
	for range 8 {
		targets = append(targets, b.target(t, dc.TargetConfig{Responders: 2}))
	}
	for range 4 {
		control, err := dc.NewControl(dc.ControlConfig{PD: a.pd, GID: a.gid})
		require.NoError(t, err)
		i, err := dc.NewInitiator(dc.InitiatorConfig{PD: a.pd, GID: a.gid, Control: control, Backend: dc.Software, Contexts: 2})
		require.NoError(t, err)
		for n, target := range targets {
			do(t, i, resolve(t, i, target, 0), a.write(uint64(n), b, 0))
		}
		var all sync.WaitGroup
		all.Go(func() {
			for {
				err := control.Close()
				if err == nil {
					return
				}
				if !errors.Is(err, dc.ErrInUse) {
					t.Error(err)
					return
				}
			}
		})
		require.NoError(t, i.Close())
		all.Wait()
	}
}

// TestAttachEnds when the initiator does, or its completion queue is lost.
func TestAttachEnds(t *testing.T) {
	for name, end := range map[string]func(*dc.Initiator){
		"closed": func(i *dc.Initiator) { i.Close() },
		"lost":   func(i *dc.Initiator) { i.Lose(errors.New("no queue")) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t)
			i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, ConnectTimeout: time.Minute})
			gone := b.target(t, dc.TargetConfig{})
			p := resolve(t, i, gone, 0)
			require.NoError(t, gone.Close())
			done := make(chan error)
			go func() { done <- i.Attach(context.Background(), p) }()
			time.Sleep(20 * time.Millisecond)
			end(i)
			select {
			case err := <-done:
				require.Error(t, err)
			case <-time.After(testTimeout):
				t.Fatal("Attach waits for nothing")
			}
		})
	}
}

// TestFirstContactWithDead targets, not known to be dead: those that
// live are not long in coming.
func TestFirstContactWithDead(t *testing.T) {
	const dead, contexts = 300, 8
	a, b := newHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: contexts, ConnectTimeout: 3 * time.Second})
	target := b.target(t, dc.TargetConfig{})
	var live []*dc.Peer
	for range 8 {
		live = append(live, resolve(t, i, b.target(t, dc.TargetConfig{}), 0))
	}
	do(t, i, resolve(t, i, target, 0), a.write(1, b, 0))
	nobody := target.Address()
	for n := range uint32(dead) {
		nobody.QPN = 0x800000 + n
		p, err := i.Resolve(nobody, 0)
		require.NoError(t, err)
		quiet := a.write(2, b, 0)
		quiet.Quiet = true
		_, err = i.Post(p, quiet)
		require.NoError(t, err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var all sync.WaitGroup
	for n, p := range live {
		all.Go(func() {
			if err := i.Do(ctx, p, a.write(3, b, 4096*n)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	t.Logf("all live targets after %v: %+v", took, i.Stats())
	require.Less(t, took, dead/contexts*100*time.Millisecond, "the dead hold each context for 150 ms, if they do")
}
