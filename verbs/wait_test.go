//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func TestWaitEndsEarly(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	var wcs [1]verbs.WC

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.CQ.Wait(ctx, wcs[:])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.CQ.Wait(ctx, wcs[:])
	require.ErrorIs(t, err, context.DeadlineExceeded, "and again")

	ctx2, cancel2 := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel2)
	_, err = s.CQ.Wait(ctx2, wcs[:])
	require.ErrorIs(t, err, context.Canceled, "another context, after one that ran out")

	cq, err := s.Dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := cq.Wait(context.Background(), wcs[:])
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, cq.Close())
	require.ErrorIs(t, <-done, verbs.ErrClosed)

	polled, err := s.Dev.CreateCQ(verbs.CQConfig{PollOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, polled.Close()) }()
	_, err = polled.Wait(context.Background(), wcs[:])
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// No wake-up is lost: every message gets a reply before the next one, and both
// sides always park.
func TestEventsPingPong(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	a, b := rig.NewPair(t, verbs.QPConfig{MaxInline: 16}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// Each side serves rounds times: the first one then sees the last return.
	play := func(s *rig.Side, serves bool) error {
		batch, err := s.QP.NewBatch(1)
		if err != nil {
			return err
		}
		recv, err := s.QP.NewRecvBatch(1)
		if err != nil {
			return err
		}
		wcs := make([]verbs.WC, 4)
		send := func() error {
			batch.SendInline(1, verbs.Signaled, []byte("ball"))
			_, err := batch.Post()
			return err
		}
		for i := range rounds {
			recv.Recv(2, s.MR.SGE(0, 64))
			if _, err := recv.Post(); err != nil {
				return err
			}
			if serves {
				if err := send(); err != nil {
					return err
				}
			}
			for received := false; !received; {
				n, err := s.CQ.Wait(ctx, wcs)
				if err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
				for j := range wcs[:n] {
					if err := wcs[j].Err(); err != nil {
						return err
					}
					received = received || wcs[j].Opcode() == verbs.WCRecv
				}
			}
			if !serves {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	var errB error
	wg.Go(func() { errB = play(b, false) })
	errA := play(a, true)
	wg.Wait()
	require.NoError(t, errors.Join(errA, errB))
}

// Waiting again with the same context allocates nothing, parked or not.
func TestWaitDoesNotAllocate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batch := a.Batch(t, 1)
	wcs := make([]verbs.WC, 1)
	at, local := b.MR.Region().At(0), a.MR.SGE(0, 65536)
	allocs := testing.AllocsPerRun(100, func() {
		batch.Read(1, verbs.Signaled, at, local)
		if _, err := batch.Post(); err != nil {
			t.Error(err)
		}
		if _, err := a.CQ.Wait(ctx, wcs); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
}
