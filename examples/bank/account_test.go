package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A client that finds a transfer left after any of its WRITEs ends it, as if
// it had been made or had never begun; and so does a client after one that was cut in that.
func TestTransferIsEndedWhereverItWasLeft(t *testing.T) {
	tr := transfer{id: 9, from: 0, to: 1, amount: 30}
	start := [2]account{{balance: 100}, {balance: 5}}
	for n := range 5 {
		bank := start
		for _, w := range tr.steps(bank[0], bank[1])[:n] {
			bank[w.slot] = w.to
		}
		for left := range 3 {
			again := bank
			for _, w := range first(tr.finish(again[0], again[1]), left) {
				again[w.slot] = w.to
			}
			for _, w := range tr.finish(again[0], again[1]) {
				again[w.slot] = w.to
			}
			want := [2]account{{balance: 70}, {balance: 35}}
			if n < 2 {
				want = start
			}
			require.Equal(t, want, again, "after %d WRITEs, then %d", n, left)
		}
	}
}

func first(w []write, n int) []write { return w[:min(n, len(w))] }

func TestAccountCodec(t *testing.T) {
	a := account{balance: -3, open: transfer{id: 1, from: 2, to: 3, amount: 4}}
	require.Equal(t, a, decode(a.encode()))
	require.Zero(t, decode(nil))
}
