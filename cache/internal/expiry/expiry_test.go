package expiry

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// An item is due when its time has come and not before, whatever is inserted and removed meanwhile.
func TestDue(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	q, all, now := New(), map[uint32]uint64{}, uint64(1)
	came := 0
	for range 30_000 {
		item := uint32(rng.IntN(2000))
		switch rng.IntN(8) {
		case 0:
			q.Remove(item)
			delete(all, item)
		case 1:
			now += rng.Uint64N(1 << rng.IntN(20))
		case 2:
			for {
				got, ok, _ := q.Due(now, 1<<20)
				if !ok {
					break
				}
				if at := all[got]; at == 0 || at > now {
					t.Fatalf("item %d of %d is due at %d", got, at, now)
				}
				q.Remove(got)
				delete(all, got)
				came++
			}
			for item, at := range all {
				if at <= now {
					t.Fatalf("item %d of %d is not due at %d", item, at, now)
				}
			}
		default:
			q.Remove(item)
			all[item] = max(1, now-min(now, 50)+rng.Uint64N(1<<rng.IntN(40)))
			q.Insert(item, all[item])
		}
	}
	require.Greater(t, came, 500)
	for item := range all {
		q.Remove(item)
	}
	_, ok, _ := q.Due(1<<63, 1<<20)
	require.False(t, ok)
	require.Zero(t, q.full)
}

// Few steps at a time are enough: none is lost.
func TestFewSteps(t *testing.T) {
	q := New()
	const items = 1000
	for i := range uint32(items) {
		q.Insert(i, 1<<40+uint64(i))
	}
	_, ok, more := q.Due(1<<41, 0)
	require.Equal(t, [2]bool{false, true}, [2]bool{ok, more}, "it gives up")
	n := 0
	for ok, more := true, false; ok || more; {
		var got uint32
		if got, ok, more = q.Due(1<<41, 1); ok {
			q.Remove(got)
			n++
		}
	}
	require.Equal(t, items, n)
}
