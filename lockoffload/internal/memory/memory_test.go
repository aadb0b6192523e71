package memory

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	buf := make([]byte, 100)
	n := Encode(buf, 7, []byte("hello"))
	v, data, err := Decode(buf)
	require.NoError(t, err)
	require.Equal(t, uint64(7), v)
	require.Equal(t, "hello", string(data))
	for i := range n * 8 { // no flipped bit passes
		buf[i/8] ^= 1 << (i % 8)
		_, _, err := Decode(buf)
		require.ErrorIs(t, err, ErrRecord, "bit %d", i)
		buf[i/8] ^= 1 << (i % 8)
	}
	_, _, err = Decode(make([]byte, 100))
	require.ErrorIs(t, err, ErrRecord, "memory that was never laid out")
	_, _, err = Decode(nil)
	require.ErrorIs(t, err, ErrRecord)
}

func TestTwoCopies(t *testing.T) {
	l := &Layout{Records: 1, Size: 16}
	half := l.CopyStride()
	pair := make([]byte, l.PairSize())
	put := func(which int, version uint64, data string) { Encode(pair[which*half:], version, []byte(data)) }
	spoil := func(which int) { pair[which*half+9] ^= 1 }

	put(0, 1, "one")
	put(1, 2, "two")
	c, err := l.DecodePair(pair)
	require.NoError(t, err)
	require.Equal(t, Current{1, 2, pair[half+HeaderSize:][:3], true}, c)
	put(0, 3, "three")
	c, err = l.DecodePair(pair)
	require.NoError(t, err)
	require.Equal(t, Current{0, 3, pair[HeaderSize:][:5], true}, c)
	spoil(0) // the writer of version 3 died
	c, err = l.DecodePair(pair)
	require.NoError(t, err)
	require.Equal(t, Current{1, 2, pair[half+HeaderSize:][:3], false}, c)
	spoil(1)
	_, err = l.DecodePair(pair)
	require.ErrorIs(t, err, ErrRecord)
}

// A held lock or a reader's bit is found, in each slot and by itself, and nothing else is.
func TestScan(t *testing.T) {
	for _, l := range []Layout{{Slots: 1, Size: 8}, {Slots: 5, Size: 8, Clients: 100}, {Slots: 3, Size: 100, Records: 2, Clients: 1000, Swap: 1}} {
		l = l.WithDefaults()
		mem := make([]byte, l.Bytes())
		for i := range mem { // data and words of others that say nothing
			mem[i] = 0xff
		}
		masks := make([]uint64, l.ReadersSize()/8)
		for i := range masks {
			masks[i] = 1 << i << 3
		}
		put := func(off int, v uint64) { binary.NativeEndian.PutUint64(mem[off:], v) }
		for slot := range l.Slots {
			put(l.LockOff(slot), 0)
			for i := range masks {
				put(l.ReadersOff(slot)+8*i, ^masks[i])
			}
		}
		scan := l.Scan()
		require.Equal(t, l.Slots, scan.Busy(mem, 0, l.Slots, masks))
		require.Equal(t, l.Slots, scan.Busy(mem, l.Slots, l.Slots, masks))
		for slot := range l.Slots {
			found := func(word int, v uint64) {
				t.Helper()
				before := LoadWord(mem, word)
				put(word, v)
				require.Equal(t, slot, scan.Busy(mem, 0, l.Slots, masks))
				require.Equal(t, slot, scan.Busy(mem, slot, l.Slots, masks))
				require.Equal(t, slot, scan.Busy(mem, 0, slot, masks), "and none beyond the end")
				require.Equal(t, l.Slots, scan.Busy(mem, slot+1, l.Slots, masks))
				in := l.Slots
				if word < l.ReadersOff(slot) {
					in = slot
				}
				require.Equal(t, in, scan.Busy(mem, 0, l.Slots, nil), "of no readers")
				put(word, before)
			}
			found(l.LockOff(slot), MakeTag(1, 1, 1))
			for i := range masks {
				found(l.ReadersOff(slot)+8*i, masks[i])
			}
		}
	}
}

// Nothing in a region overlaps, and words are aligned.
func TestLayout(t *testing.T) {
	for _, l := range []Layout{{Slots: 3, Size: 1}, {Slots: 2, Size: 100, Records: 3, Clients: 65, Swap: 2}, {Slots: 1, Size: 8, Clients: 1}, {Slots: 2, Size: 8, Clients: 4096}} {
		l = l.WithDefaults()
		require.NoError(t, l.Check())
		used := make([]int, l.Bytes())
		mark := func(off, n int) {
			require.Zero(t, off%8)
			for i := range n {
				used[off+i]++
				require.Equal(t, 1, used[off+i], "%+v: byte %d", l, off+i)
			}
		}
		for c := range l.Clients {
			mark(l.BeatOff(uint16(c+1)), 8)
		}
		for s := range l.Slots {
			require.Zero(t, l.slotOff(s)%lineSize)
			mark(l.LockOff(s), 8)
			mark(l.FenceOff(s), 8)
			mark(l.PointerOff(s), 8)
			mark(l.ReadersOff(s), l.ReadersSize())
			off, bit := l.ReaderBit(s, uint16(l.readerBits()))
			require.Less(t, off, l.ReadersOff(s)+l.ReadersSize())
			require.NotZero(t, bit)
			require.Equal(t, l.PairOff(s), l.CopyOff(s, 0))
			require.Equal(t, l.PairOff(s)+l.PairSize(), l.CopyOff(s, 1)+l.CopyStride())
			mark(l.PairOff(s), l.PairSize())
			for i := range l.Swap {
				mark(l.SwapOff(s, i), HeaderSize+l.Size)
			}
		}
		mem := make([]byte, l.Bytes())
		const first = 1<<VersionBits - 1
		l.Format(mem, first)
		for s := range l.Slots {
			require.EqualValues(t, first, LoadWord(mem, l.FenceOff(s)))
			require.EqualValues(t, first, LoadWord(mem, l.PointerOff(s)))
			for i := range l.Swap {
				version, data, err := Decode(mem[l.SwapOff(s, i):])
				require.NoError(t, err)
				require.EqualValues(t, first, version)
				require.Empty(t, data)
			}
			c, err := l.DecodePair(mem[l.PairOff(s):][:l.PairSize()])
			require.NoError(t, err)
			require.True(t, c.Whole)
			for r := range l.Records {
				now, err := l.Record(&c, r)
				require.NoError(t, err)
				require.EqualValues(t, first, now.Version)
				require.Empty(t, now.Data)
			}
		}
	}
	for _, l := range []Layout{{}, {Slots: 1}, {Size: 1}, {Slots: 1, Size: 2 << 20}, {Slots: 1 << 30, Size: 1 << 20}, {Slots: 1, Size: 1, Clients: 5000}, {Slots: 1, Size: 1, Records: -1}} {
		require.ErrorIs(t, l.WithDefaults().Check(), ErrConfig, "%+v", l)
	}
}

// What a slot has beside its data stays small, however many clients there may be.
func TestSlotsDoNotGrowWithClients(t *testing.T) {
	for size := range 200 {
		l := Layout{Slots: 1, Size: 1 + size, Clients: 4096}.WithDefaults()
		require.LessOrEqual(t, l.SlotStride()-l.PairSize(), 256)
	}
}

// Records of a slot are changed one by one in a copy, and the others stay.
func TestRecordsOfACopy(t *testing.T) {
	l := Layout{Slots: 1, Size: 13, Records: 3}.WithDefaults()
	mem := make([]byte, l.Bytes())
	l.Format(mem, 0)
	want := [3]Content{}
	for version := range uint64(6) {
		cur, err := l.DecodePair(mem[l.PairOff(0):][:l.PairSize()])
		require.NoError(t, err)
		require.Equal(t, version, cur.Version)
		for r := range want {
			got, err := l.Record(&cur, r)
			require.NoError(t, err)
			require.Equal(t, want[r].Version, got.Version)
			require.Equal(t, string(want[r].Data), string(got.Data))
		}
		next := mem[l.CopyOff(0, 1-cur.Which):][:l.CopyStride()]
		l.Stage(next, &cur)
		for _, r := range []int{int(version) % 3, int(version+1) % 3} {
			want[r] = Content{want[r].Version + 1, []byte("thirteen bytes"[:version+7])}
			l.Put(next, r, want[r].Version, []byte("overwritten"))
			l.Put(next, r, want[r].Version, want[r].Data)
			staged := l.Staged(next, version+1)
			got, err := l.Record(&staged, r)
			require.NoError(t, err)
			require.Equal(t, string(want[r].Data), string(got.Data))
		}
		l.Seal(next, version+1)
	}
}

func TestTags(t *testing.T) {
	tg := Tagger{Owner: 3, Epoch: 9}
	a, b := tg.Next(false), tg.Next(true)
	require.NotEqual(t, a, b)
	require.NotEqual(t, a, tg.Next(false))
	require.NotEqual(t, b, tg.Next(true))
	require.Equal(t, uint64(3<<16|9), TagIdentity(a))
	require.Equal(t, uint64(3<<16|9), TagIdentity(b))
	require.Zero(t, a&ReadingTag)
	require.NotZero(t, b&ReadingTag)
	require.Less(t, 4096, AgentOwner, "no client has it")
}
