//go:build linux

package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A wait for solicited events only sleeps through messages that do not ask
// for one, and then finds them all.
func TestSolicitedEvents(t *testing.T) {
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{SolicitedOnly: true})
	require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
	require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
	b.Recv(t, 4, 64)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Timeout)
	defer cancel()
	woken := make(chan int)
	go func() {
		wcs := make([]verbs.WC, 4)
		n, err := b.CQ.Wait(ctx, wcs)
		if err != nil {
			t.Error(err)
		}
		woken <- n
	}()
	verbs.Parked(t, "IO wait", "verbs.(*CQ).Wait")
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	select {
	case <-woken:
		t.Fatal("woken by a message that asks for no event")
	case <-time.After(100 * time.Millisecond):
	}
	batch.Send(2, verbs.Signaled|verbs.Solicited, a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	require.Equal(t, 2, <-woken)
}
