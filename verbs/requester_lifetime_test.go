//go:build linux

package verbs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What is under way when a requester comes, goes, or loses its queue pair.
func TestRequesterComesAndGoes(t *testing.T) {
	late := func(t *testing.T, b *rig.Side) {
		time.AfterFunc(50*time.Millisecond, func() {
			rb, err := b.QP.NewRecvBatch(1)
			if err == nil {
				rb.Recv(1, b.MR.SGE(0, 64))
				_, err = rb.Post()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("success before reset", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		r := newRequester(t, a, verbs.RequesterConfig{})
		p, err := r.Start(t.Context(), verbs.SendWR(a.MR.SGE(0, 8)))
		require.NoError(t, err)
		late(t, b)
		b.Wait(t, 1)
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, a.QP.ToReset())
		if err := p.Wait(t.Context()); err != nil {
			t.Errorf("it had succeeded: %v", err)
		}
	})
	t.Run("Wait under way", func(t *testing.T) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		got := make(chan string, 1)
		go func() {
			var wcs [1]verbs.WC
			n, err := a.CQ.Wait(ctx, wcs[:])
			got <- fmt.Sprint(n, " ", err)
		}()
		time.Sleep(100 * time.Millisecond)
		r, err := verbs.NewRequester(a.QP, verbs.RequesterConfig{})
		if err != nil {
			return
		}
		p, err := r.Start(ctx, verbs.SendWR(a.MR.SGE(0, 8)))
		require.NoError(t, err)
		late(t, b)
		time.Sleep(500 * time.Millisecond)
		err = p.Wait(ctx)
		s := <-got
		if err != nil {
			t.Errorf("%v; the program's Wait had %s", err, s)
		}
		inTime(t, 5*time.Second, "Close", func() { r.Close() })
	})
	t.Run("new requester while a state changes", func(t *testing.T) {
		a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 300 {
				a.QP.ToReset()
				a.QP.ToError()
			}
		})
		for range 100 {
			r := bare(t, a)
			require.NoError(t, r.Close())
		}
		wg.Wait()
	})
	for _, n := range []int{4, 32} {
		for _, cancellable := range []bool{false, true} {
			t.Run(fmt.Sprint("reset under waiting calls ", n, " ", cancellable), func(t *testing.T) {
				a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
				r := bare(t, a)
				ctx := context.Background()
				if cancellable {
					ctx = t.Context()
				}
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() { r.Send(ctx, a.MR.SGE(0, 8)) })
				}
				time.Sleep(100 * time.Millisecond)
				begin := time.Now()
				if inTime(t, 8*time.Second, "ToReset", func() { a.QP.ToReset() }) {
					t.Log(time.Since(begin))
					wg.Wait()
					r.Close()
				}
			})
		}
	}
}
