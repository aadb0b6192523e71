package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

func TestTable(t *testing.T) {
	var all Table
	require.Empty(t, all.Load())
	all.Add(TCP, Of(&wire.Request{Op: wire.OpAdd}), 3*time.Nanosecond)
	all.Add(RDMA, Of(&wire.Request{Op: wire.OpGet}), 1000)
	all.Add(RDMA, Get, 600)
	all.Add(Gateway, Of(&wire.Request{Op: wire.OpGet, Want: wire.WantTouch | wire.WantNoValue}), -5) // a clock that goes back
	got := all.Load()
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
	for op, want := range map[wire.Op]Op{wire.OpGet: Get, wire.OpDelete: Delete, wire.OpArith: Arith, wire.OpFlush: Flush,
		wire.OpSet: Store, wire.OpReplace: Store, wire.OpAppend: Store, wire.OpPrepend: Store} {
		require.Equal(t, want, Of(&wire.Request{Op: op}))
	}
	for op, name := range opNames {
		require.NotEmpty(t, name, op)
	}
}
