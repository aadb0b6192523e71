package session

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Queues agree with slices, through random operations.
func TestLinks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var links Links
	queues := [2]Queue{EmptyQueue, EmptyQueue}
	var model [2][]uint32
	used := map[uint32]bool{}
	for range 20000 {
		k := rng.IntN(2)
		q, m := &queues[k], &model[k]
		switch op := rng.IntN(5); {
		case op < 2 && len(used) < 12:
			i := links.New()
			require.False(t, used[i])
			used[i] = true
			if op == 0 {
				links.Push(q, i)
				*m = append(*m, i)
			} else {
				links.PushFront(q, i)
				*m = slices.Insert(*m, 0, i)
			}
		case op == 2 && len(*m) > 0:
			i := (*m)[0]
			links.Pop(q)
			*m = (*m)[1:]
			links.Free(i)
			delete(used, i)
		case op > 2 && len(*m) > 0:
			at := rng.IntN(len(*m))
			i := (*m)[at]
			links.Remove(q, i)
			links.Remove(q, i) // it is there no more
			*m = slices.Delete(*m, at, at+1)
			links.Free(i)
			delete(used, i)
		}
		var got []uint32
		tail := None
		for i := q.Head; i != None; i = links.Next(i) {
			got, tail = append(got, i), i
		}
		require.Equal(t, append([]uint32(nil), *m...), got)
		require.Equal(t, tail, q.Tail)
	}
	require.LessOrEqual(t, len(links.next), 12, "freed indexes are used again")
}
