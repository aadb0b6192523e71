package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/histogram"
)

// loaded is like Latency of package cache.
type loaded struct {
	Operation, Transport string
	Nanoseconds          histogram.Counts
}

func TestTable(t *testing.T) {
	var all Table
	require.Empty(t, Load[loaded](&all))
	all.Add(TCP, Of(&kv.Request{Op: kv.OpAdd}), 3*time.Nanosecond)
	all.Add(RDMA, Of(&kv.Request{Op: kv.OpGet}), 1000)
	all.Add(RDMA, Get, 600)
	all.Add(Gateway, Of(&kv.Request{Op: kv.OpGet, Want: kv.WantTouch | kv.WantNoValue}), -5) // a clock that goes back
	got := Load[loaded](&all)
	require.Len(t, got, 3)
	require.Equal(t, []string{"get", "rdma"}, []string{got[0].Operation, got[0].Transport})
	require.EqualValues(t, 2, got[0].Nanoseconds.N[10])
	require.EqualValues(t, 1600, got[0].Nanoseconds.Sum)
	require.Equal(t, []string{"store", "tcp"}, []string{got[1].Operation, got[1].Transport})
	require.Equal(t, []string{"touch", "gateway"}, []string{got[2].Operation, got[2].Transport})
	require.EqualValues(t, 1, got[2].Nanoseconds.N[0])
}

// Each operation has a kind of its own, but for the many ways to store.
func TestOf(t *testing.T) {
	for op, want := range map[kv.Op]Op{kv.OpGet: Get, kv.OpDelete: Delete, kv.OpArith: Arith, kv.OpFlush: Flush,
		kv.OpSet: Store, kv.OpReplace: Store, kv.OpAppend: Store, kv.OpPrepend: Store} {
		require.Equal(t, want, Of(&kv.Request{Op: op}))
	}
	for op, name := range opNames {
		require.NotEmpty(t, name, op)
	}
}
