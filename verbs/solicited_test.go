//go:build linux

package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Who waits for solicited events only sleeps through messages that do not ask
// for one, and then finds them all.
func TestSolicitedEvents(t *testing.T) {
	p := ports(t)
	a := newSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	b := newSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{SolicitedOnly: true})
	require.NoError(t, a.qp.Connect(b.endpoint(t), verbs.ConnectConfig{}))
	require.NoError(t, b.qp.Connect(a.endpoint(t), verbs.ConnectConfig{}))
	b.recv(t, 4, 64)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	woken := make(chan int)
	go func() {
		wcs := make([]verbs.WC, 4)
		n, err := b.cq.Wait(ctx, wcs)
		if err != nil {
			t.Error(err)
		}
		woken <- n
	}()
	time.Sleep(50 * time.Millisecond) // it is parked by now
	batch := a.batch(t, 1)
	batch.Send(1, verbs.Signaled, a.mr.SGE(0, 8))
	a.do(t, batch, 1)
	select {
	case <-woken:
		t.Fatal("woken by a message that asks for no event")
	case <-time.After(100 * time.Millisecond):
	}
	batch.Send(2, verbs.Signaled|verbs.Solicited, a.mr.SGE(0, 8))
	a.do(t, batch, 1)
	require.Equal(t, 2, <-woken)
}
