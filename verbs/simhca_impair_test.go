//go:build simhca && linux && cgo

package verbs_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/simrules"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// impair sets the impairments of the test's fabric until the test ends.
func impair(t *testing.T, rules ...string) {
	t.Helper()
	inFabric(t)
	file, err := simrules.OwnFile()
	require.NoError(t, err)
	require.NoError(t, simrules.Write(file, rules...))
	t.Cleanup(func() { require.NoError(t, simrules.Clear(file)) })
	time.Sleep(30 * time.Millisecond) // devices look every 5 ms
}

const there, back = "127.0.0.1 127.0.0.2 ", "127.0.0.2 127.0.0.1 "

// A READ takes as long as request and response do, and many at once little longer.
func TestFabricDelay(t *testing.T) {
	inFabric(t)
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	impair(t, there+"delay=4ms", back+"delay=6ms")
	for _, n := range []int{1, 16} {
		batch := a.Batch(t, n)
		for i := range n {
			batch.Read(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(8*i, 8))
		}
		begin := time.Now()
		a.Do(t, batch, n)
		took := time.Since(begin)
		require.GreaterOrEqual(t, took, 10*time.Millisecond, n)
		require.Less(t, took, 80*time.Millisecond, n)
	}
}

// A way of 80 Mbit/s takes 100 ms for a megabyte, in the direction that the bytes go.
func TestFabricRate(t *testing.T) {
	inFabric(t)
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	impair(t, there+"rate=80Mbit")
	for read, want := range map[bool]bool{false: true, true: false} {
		batch := a.Batch(t, 1)
		if read {
			batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, rig.BufSize))
		} else {
			batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, rig.BufSize))
		}
		begin := time.Now()
		a.Do(t, batch, 1)
		require.Equal(t, want, time.Since(begin) > 100*time.Millisecond, "READ: %v, %v", read, time.Since(begin))
	}
}

// Connections outlast the loss of each tenth packet: all arrives once, and in order. Datagrams do not.
func TestFabricLoss(t *testing.T) {
	inFabric(t)
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: time.Millisecond, Retries: 7, MTU: verbs.MTU256})
	c, d := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	to := rig.Dest(t, c, d)
	impair(t, "* * loss=10%")
	const rounds = 50
	for i := range rounds {
		binary.NativeEndian.PutUint64(a.MR.Bytes(), uint64(i))
		batch := a.Batch(t, 4)
		batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 5000))
		batch.Read(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(8192, 5000))
		batch.FetchAdd(3, verbs.Signaled, b.MR.Region().At(16384), 1, a.MR.SGE(16384, 8))
		batch.Write(4, verbs.Signaled, b.MR.Region().At(8192), a.MR.SGE(0, 8))
		a.Do(t, batch, 4)
		require.Equal(t, a.MR.Bytes()[:5000], a.MR.Bytes()[8192:8192+5000])
		require.EqualValues(t, i, binary.NativeEndian.Uint64(a.MR.Bytes()[16384:]), "each is executed once")
	}

	const sent, each = 480, 32
	wc, arrived := make([]verbs.WC, each), 0
	for from := 0; from < sent; from += each {
		d.Recv(t, each, 1024)
		batch := c.Batch(t, each)
		for i := range each {
			batch.SendTo(uint64(i), verbs.Signaled, to, c.MR.SGE(0, 8))
		}
		c.Do(t, batch, each)
		n, err := d.CQ.Poll(wc)
		require.NoError(t, err)
		arrived += n
	}
	require.Greater(t, arrived, sent*8/10)
	require.Less(t, arrived, sent*98/100)
}

// A way that is cut ends requests after their retries. One whose response alone is lost has been executed; what
// the cut ends before the retries do goes on.
func TestFabricCut(t *testing.T) {
	inFabric(t)
	for rule, executed := range map[string]bool{there + "cut": false, back + "cut": true} {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 4 * time.Millisecond, Retries: 3})
		impair(t, rule)
		a.MR.Bytes()[0] = 1
		batch := a.Batch(t, 1)
		batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 1))
		begin := time.Now()
		_, err := batch.Post()
		require.NoError(t, err)
		wcs := a.Wait(t, 1)
		require.Equal(t, verbs.WCRetryExceeded, wcs[0].Status())
		require.GreaterOrEqual(t, time.Since(begin), 16*time.Millisecond)
		require.Equal(t, executed, b.MR.Bytes()[0] == 1, rule)
	}
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 67 * time.Millisecond, Retries: 7})
	impair(t, there+"cut")
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 1))
	_, err := batch.Post()
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond)
	n, err := a.CQ.Poll(make([]verbs.WC, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	impair(t)
	wcs := a.Wait(t, 1)
	require.NoError(t, wcs[0].Err())
}
