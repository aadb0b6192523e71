//go:build linux

package verbs_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// maskers makes n queue pairs from one host to the other, each with masked
// atomics on the same words.
func maskers(t testing.TB, n int) (out []*verbs.Masked, region verbs.Region, memory *verbs.MR) {
	t.Helper()
	p := rig.Ports(t)
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	for range n {
		a := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
		qp, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, GID: p[1].GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		remote, err := qp.Endpoint()
		require.NoError(t, err)
		require.NoError(t, a.QP.Connect(remote, verbs.ConnectConfig{}))
		require.NoError(t, qp.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
		m, err := verbs.NewMasked(newRequester(t, a, verbs.RequesterConfig{}), a.MR, 0, verbs.MaskedConfig{})
		require.NoError(t, err)
		require.False(t, m.Native())
		out = append(out, m)
	}
	return out, b.MR.Region(), b.MR
}

func TestMasked(t *testing.T) {
	ms, region, memory := maskers(t, 1)
	m, ctx, at := ms[0], t.Context(), region.At(64)
	word := func() uint64 {
		v, err := memory.Load64(64)
		require.NoError(t, err)
		return v
	}
	require.NoError(t, memory.Store64(64, 0xff00))
	old, err := m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Compare: 0x0f00, CompareMask: 0x0f00, Swap: 0x12, SwapMask: 0xff})
	require.NoError(t, err)
	require.EqualValues(t, 0xff00, old)
	require.EqualValues(t, 0xff12, word())
	require.Equal(t, 1, m.Tries())

	old, err = m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Compare: 0, CompareMask: 0x0f00, Swap: 0, SwapMask: ^uint64(0)})
	require.NoError(t, err)
	require.EqualValues(t, 0xff12, old)
	require.EqualValues(t, 0xff12, word(), "not equal: untouched")
	require.Zero(t, m.Tries())

	old, err = m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Compare: 0xff12, CompareMask: ^uint64(0), Swap: 0xab, SwapMask: 0xff})
	require.NoError(t, err)
	require.EqualValues(t, 0xff12, old)
	require.EqualValues(t, 0xffab, word())

	old, err = m.FetchAdd(ctx, at, verbs.MaskedFetchAdd{Add: 0x0101, Boundary: 0x8080})
	require.NoError(t, err)
	require.EqualValues(t, 0xffab, old)
	require.EqualValues(t, 0x00ac, word(), "the carry stays in its field")

	_, err = m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Swap: 0xf0f0, SwapMask: ^uint64(0)})
	require.NoError(t, err)
	_, err = m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{SwapMask: ^uint64(0xff00)})
	require.NoError(t, err)
	require.EqualValues(t, 0xf000, word())
	_, err = m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Swap: 0x000f, SwapMask: 0x000f})
	require.NoError(t, err)
	require.EqualValues(t, 0xf00f, word())
	_, err = m.FetchAdd(ctx, at, verbs.MaskedFetchAdd{Add: 0xffff, Boundary: ^uint64(0)})
	require.NoError(t, err)
	require.EqualValues(t, 0x0ff0, word())
	field, err := m.AddField(ctx, at, 4, 8, 2)
	require.NoError(t, err)
	require.EqualValues(t, 0xff, field)
	require.EqualValues(t, 0x0010, word())

	require.NoError(t, memory.Store64(64, 0x1111111122222222))
	low, err := m.FetchAdd32(ctx, region.At(64), verbs.MaskedFetchAdd{Add: 0xffffffff})
	require.NoError(t, err)
	require.EqualValues(t, 0x22222222, low)
	require.EqualValues(t, 0x1111111122222221, word())
	high, err := m.CmpSwap32(ctx, region.At(68), verbs.MaskedCmpSwap{Compare: 0x11, CompareMask: 0xff, Swap: 0xee, SwapMask: 0xff})
	require.NoError(t, err)
	require.EqualValues(t, 0x11111111, high)
	require.EqualValues(t, 0x111111ee22222221, word())

	_, err = m.CmpSwap(ctx, region.At(65), verbs.MaskedCmpSwap{Swap: 1, SwapMask: ^uint64(0)})
	require.ErrorIs(t, err, verbs.ErrRange)
	_, err = m.FetchAdd32(ctx, region.At(66), verbs.MaskedFetchAdd{})
	require.ErrorIs(t, err, verbs.ErrRange)
	_, err = m.AddField(ctx, at, 60, 8, 1)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = m.CmpSwap(done, at, verbs.MaskedCmpSwap{Swap: 1, SwapMask: ^uint64(0)})
	require.ErrorIs(t, err, context.Canceled)

	require.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := m.FetchAdd(ctx, at, verbs.MaskedFetchAdd{Add: 1, Boundary: ^uint64(0)}); err != nil {
			t.Fatal(err)
		}
	}))
}

// TestMaskedContended: random programs of masked operations from several queue
// pairs on one word. Each returns the word before; a legal order of all of them
// must exist (checkOrder).
func TestMaskedContended(t *testing.T) {
	const writers = 4
	steps := 60
	if testing.Short() {
		steps = 25
	}
	ms, region, memory := maskers(t, writers)
	seed := testseed.New(t)
	for round := range 4 {
		require.NoError(t, memory.Store64(0, 0))
		history := make([]maskedHistory, writers)
		var wg sync.WaitGroup
		for w, m := range ms {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed+uint64(round), uint64(w)))
				for range steps {
					h := randomMasked(r)
					h.begin()
					old, err := h.do(t.Context(), m, region.At(0))
					if err != nil {
						t.Error(err)
						return
					}
					h.end(old)
					history[w] = append(history[w], h)
				}
			})
		}
		wg.Wait()
		last, err := memory.Load64(0)
		require.NoError(t, err)
		checkOrder(t, history, last)
	}
}
