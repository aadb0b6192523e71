package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// swapBench is a bench with private copies, of which the first one is current.
func swapBench() *bench { return newBenchOf(memory.Layout{Slots: 2, Size: 16, Clients: 2, Swap: 4}) }

// shapes executes a machine to its end and returns what the requests of its lists are.
func (b *bench) shapes(t *testing.T, m Machine) (shapes [][]OpKind, err error) {
	t.Helper()
	lists, end, err := b.lists(t, m)
	require.Equal(t, Done, end)
	for _, ops := range lists {
		shapes = append(shapes, shape(ops))
	}
	return shapes, err
}

// A pointer that was seen costs one list where it is the same, to read and to write, and one
// more where it is not.
func TestListsOfSwap(t *testing.T) {
	b := swapBench()
	look, both, copy := []OpKind{OpFetchAdd}, []OpKind{OpRead, OpFetchAdd}, []OpKind{OpRead}
	swap := []OpKind{OpWrite, OpCmpSwap}
	read := func(pointer uint64, known bool, want ...[]OpKind) *SwapReader {
		t.Helper()
		m := &SwapReader{SwapLook: SwapLook{Slot: 1, Pointer: pointer, Known: known, Work: Work{Ops: []Op{{}}}}} // of another operation
		got, err := b.shapes(t, m)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.True(t, m.Known)
		require.Equal(t, 1, m.Tried)
		require.Zero(t, m.Count.Torn)
		return m
	}
	write := func(pointer uint64, known bool, version uint64, data string, end error, want ...[]OpKind) *SwapWriter {
		t.Helper()
		m := &SwapWriter{SwapLook: SwapLook{Slot: 1, Pointer: pointer, Known: known, Work: Work{Ops: []Op{{}}}}, Owner: 1, Version: version, Data: []byte(data)}
		got, err := b.shapes(t, m)
		require.ErrorIs(t, err, end)
		require.Equal(t, want, got)
		require.True(t, m.Known)
		require.False(t, m.Posted)
		return m
	}
	first := read(0, false, look, copy).Pointer
	require.Zero(t, first)
	require.Empty(t, read(first, true, both).Data)

	one := write(0, false, 0, "one", nil, look, swap)
	require.Equal(t, makePointer(1, 1), one.Pointer)
	require.Equal(t, Counts{Tries: 1, Acquired: 1}, one.Count)
	require.Equal(t, 1, one.Tried)
	require.Equal(t, "one", string(read(one.Pointer, true, both).Data))
	require.Equal(t, "one", string(read(first, true, both, copy).Data), "it has moved")
	two := write(one.Pointer, true, 1, "two", nil, swap)
	require.Equal(t, makePointer(0, 2), two.Pointer)

	late := write(one.Pointer, true, 1, "late", ErrVersionMismatch, swap)
	require.Equal(t, two.Pointer, late.Pointer, "as it was found")
	require.Equal(t, Counts{Tries: 1, Failed: 1}, late.Count)
	write(two.Pointer, true, 1, "known to be late", ErrVersionMismatch)
	write(one.Pointer, true, 2, "three", nil, look, swap)
	write(first, true, 9, "early", ErrVersionMismatch, look)
	require.Equal(t, "three", string(read(0, false, look, copy).Data))
}

// A pointer to no copy is not kept, and a copy that is damaged is told from one that moved.
func TestDamagedSwap(t *testing.T) {
	b := swapBench()
	storeWord(b.s.mem, b.s.l.PointerOff(1), makePointer(3, 0))
	_, err := b.shapes(t, &SwapReader{SwapLook: SwapLook{Slot: 1}})
	require.NoError(t, err, "the last copy")
	storeWord(b.s.mem, b.s.l.PointerOff(1), makePointer(4, 0))
	for _, m := range []Machine{
		&SwapReader{SwapLook: SwapLook{Slot: 1}},
		&SwapReader{SwapLook: SwapLook{Slot: 1, Known: true}},
		&SwapWriter{SwapLook: SwapLook{Slot: 1}, Owner: 1},
		&SwapWriter{SwapLook: SwapLook{Slot: 1, Known: true}, Owner: 1},
	} {
		_, err := b.shapes(t, m)
		require.ErrorIs(t, err, memory.ErrRecord)
		switch m := m.(type) {
		case *SwapReader:
			require.False(t, m.Known)
		case *SwapWriter:
			require.False(t, m.Known)
		}
	}
	storeWord(b.s.mem, b.s.l.PointerOff(1), makePointer(0, 0))
	b.s.mem[b.s.l.SwapOff(1, 0)] ^= 1
	m := &SwapReader{SwapLook: SwapLook{Slot: 1}}
	got, err := b.shapes(t, m)
	require.ErrorIs(t, err, memory.ErrRecord)
	require.Equal(t, [][]OpKind{{OpFetchAdd}, {OpRead}, {OpFetchAdd}}, got)
	require.EqualValues(t, 1, m.Count.Torn)
}

// A copy that was written again while it was read is read anew where the pointer is then.
func TestSwapMovesUnderARead(t *testing.T) {
	b := swapBench()
	m := b.prepare(&SwapReader{SwapLook: SwapLook{Slot: 1}}).(*SwapReader)
	step := func(want ...OpKind) {
		t.Helper()
		v, err := m.Step()
		require.NoError(t, err)
		require.Equal(t, Post, v)
		require.Equal(t, want, shape(m.Ops))
		for x := (&simList{w: m.Base(), ops: m.Ops}); !b.s.execute(x); {
		}
	}
	step(OpFetchAdd)
	for version := range uint64(2) { // until the first copy is current again
		_, err := b.shapes(t, &SwapWriter{SwapLook: SwapLook{Slot: 1}, Owner: 1, Version: version, Data: []byte{byte(version)}})
		require.NoError(t, err)
	}
	step(OpRead)
	step(OpFetchAdd)
	step(OpRead)
	v, err := m.Step()
	require.NoError(t, err)
	require.Equal(t, Done, v)
	require.Equal(t, []byte{1}, m.Data)
	require.EqualValues(t, 1, m.Count.Torn)
	require.Equal(t, 2, m.Tried)
}
