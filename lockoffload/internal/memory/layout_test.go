package memory

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Client and target compute the same offsets, whichever build they are of.
func TestOffsets(t *testing.T) {
	l := Layout{Slots: 3, Size: 13, Clients: 65, Swap: 2}.WithDefaults()
	const slot = 65*64 + 256 // the second one
	require.Equal(t, 65*64+3*256, l.Bytes())
	require.Equal(t, []int{0, 64}, []int{l.BeatOff(1), l.BeatOff(2)})
	require.Equal(t, []int{slot, slot + 8, slot + 16, slot + 24}, []int{l.LockOff(1), l.FenceOff(1), l.PointerOff(1), l.ReadersOff(1)})
	require.Equal(t, []int{slot + 40, slot + 40, slot + 80}, []int{l.PairOff(1), l.CopyOff(1, 0), l.CopyOff(1, 1)})
	require.Equal(t, []int{slot + 120, slot + 160}, []int{l.SwapOff(1, 0), l.SwapOff(1, 1)})
	require.Equal(t, []int{176, 192, 272, 312}, []int{l.ReadersAt(), l.PairAt(), l.WriteAt(), l.LocalSize()})

	several := Layout{Slots: 2, Size: 13, Records: 3}
	require.Equal(t, 64*64+2*320, several.Bytes())
	several = several.WithDefaults()
	require.Equal(t, []int{4448, 4568}, []int{several.PairOff(1), several.CopyOff(1, 1)})
}

// The first clients have a bit each among the readers of a slot, the others have none.
func TestReaderBits(t *testing.T) {
	l := Layout{Slots: 2, Size: 8, Clients: 1000}.WithDefaults()
	seen := map[int]uint64{}
	for owner := uint16(1); owner <= MostReaderBits; owner++ {
		require.True(t, l.HasReaderBit(owner))
		off, bit := l.ReaderBit(1, owner)
		require.Zero(t, seen[off]&bit)
		seen[off] |= bit
	}
	require.Len(t, seen, MostReaderBits/64)
	for word := range MostReaderBits / 64 {
		require.Equal(t, uint64(1<<64-1), seen[l.ReadersOff(1)+8*word])
	}
	require.False(t, l.HasReaderBit(MostReaderBits+1))
	few := Layout{Slots: 1, Size: 8, Clients: 3}.WithDefaults()
	require.Equal(t, []bool{true, false}, []bool{few.HasReaderBit(3), few.HasReaderBit(4)})
}

// Each number of a layout has its range, and the region too.
func TestLayoutBounds(t *testing.T) {
	for name, v := range map[string]struct {
		field     func(*Layout) *int
		low, high int
	}{
		"slots":   {func(l *Layout) *int { return &l.Slots }, 1, 1 << 30},
		"size":    {func(l *Layout) *int { return &l.Size }, 1, 1 << 20},
		"records": {func(l *Layout) *int { return &l.Records }, 1, 1024},
		"clients": {func(l *Layout) *int { return &l.Clients }, 1, 4096},
		"swap":    {func(l *Layout) *int { return &l.Swap }, 0, 4096},
		"region":  {func(l *Layout) *int { l.Size = 2008; return &l.Slots }, 1, 1 << 28}, // slots of 4 KiB
	} {
		for at, ok := range map[int]bool{v.low - 1: false, v.low: true, v.high: true, v.high + 1: false} {
			l := Layout{Slots: 1, Size: 1}.WithDefaults()
			*v.field(&l) = at
			if err := l.Check(); ok {
				require.NoError(t, err, "%s %d", name, at)
			} else {
				require.ErrorIs(t, err, ErrConfig, "%s %d", name, at)
			}
		}
	}
}

// A region is formatted whatever its memory had before, and nothing behind it is touched.
func TestFormatOfUsedMemory(t *testing.T) {
	for _, l := range []Layout{{Slots: 3, Size: 13, Clients: 65, Swap: 2}, {Slots: 2, Size: 13, Records: 3}} {
		l = l.WithDefaults()
		fresh, used := make([]byte, l.Bytes()), bytes.Repeat([]byte{0xff}, l.Bytes()+8)
		l.Format(fresh, 7)
		l.Format(used, 7)
		require.Equal(t, fresh, used[:l.Bytes()])
		require.Equal(t, uint64(1<<64-1), LoadWord(used, l.Bytes()))
	}
}

// Tags count under one number for all lock commands of a process, if it has one. Only the
// mark says whether a holder reads.
func TestTagsOfOneCounter(t *testing.T) {
	n := uint32(ReadingTag)
	count := func() uint32 { n++; return n }
	one, other := Tagger{Owner: 1, Epoch: 2, Count: count}, Tagger{Owner: 1, Epoch: 2, Count: count}
	require.Equal(t, []uint64{MakeTag(1, 2, 1), MakeTag(1, 2, 2|ReadingTag), MakeTag(1, 2, 3)},
		[]uint64{one.Next(false), other.Next(true), one.Next(false)})
}
