package lockoffload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	buf := make([]byte, 100)
	n := encode(buf, 7, []byte("hello"))
	v, data, err := decode(buf)
	require.NoError(t, err)
	require.Equal(t, uint64(7), v)
	require.Equal(t, "hello", string(data))
	for i := range n * 8 { // no flipped bit passes
		buf[i/8] ^= 1 << (i % 8)
		_, _, err := decode(buf)
		require.ErrorIs(t, err, ErrRecord, "bit %d", i)
		buf[i/8] ^= 1 << (i % 8)
	}
	_, _, err = decode(make([]byte, 100))
	require.ErrorIs(t, err, ErrRecord, "memory that was never laid out")
	_, _, err = decode(nil)
	require.ErrorIs(t, err, ErrRecord)
}

func TestTwoCopies(t *testing.T) {
	pair := make([]byte, 2*32)
	put := func(which int, version uint64, data string) { encode(pair[which*32:], version, []byte(data)) }
	spoil := func(which int) { pair[which*32+9] ^= 1 }

	put(0, 1, "one")
	put(1, 2, "two")
	l := &Layout{Records: 1, Size: 16}
	c, err := l.decodePair(pair)
	require.NoError(t, err)
	require.Equal(t, current{1, 2, pair[48:51], true}, c)
	put(0, 3, "three")
	c, err = l.decodePair(pair)
	require.NoError(t, err)
	require.Equal(t, current{0, 3, pair[16:21], true}, c)
	spoil(0) // the writer of version 3 died
	c, err = l.decodePair(pair)
	require.NoError(t, err)
	require.Equal(t, current{1, 2, pair[48:51], false}, c)
	spoil(1)
	_, err = l.decodePair(pair)
	require.ErrorIs(t, err, ErrRecord)
}

// Nothing in a region overlaps, and words are aligned.
func TestLayout(t *testing.T) {
	for _, l := range []Layout{{Slots: 3, Size: 1}, {Slots: 2, Size: 100, Records: 3, Clients: 65, Swap: 2}, {Slots: 1, Size: 8, Clients: 1}, {Slots: 2, Size: 8, Clients: 4096}} {
		l = l.withDefaults()
		require.NoError(t, l.check())
		used := make([]int, l.Bytes())
		mark := func(off, n int) {
			require.Zero(t, off%8)
			for i := range n {
				used[off+i]++
				require.Equal(t, 1, used[off+i], "%+v: byte %d", l, off+i)
			}
		}
		for c := range l.Clients {
			mark(l.beatOff(uint16(c+1)), 8)
		}
		for s := range l.Slots {
			require.Zero(t, l.slotOff(s)%lineSize)
			mark(l.lockOff(s), 8)
			mark(l.ticketOff(s), 8)
			mark(l.fenceOff(s), 8)
			mark(l.pointerOff(s), 8)
			mark(l.readersOff(s), l.readersSize())
			off, bit := l.readerBit(s, uint16(l.readerBits()))
			require.Less(t, off, l.readersOff(s)+l.readersSize())
			require.NotZero(t, bit)
			require.Equal(t, l.pairOff(s), l.copyOff(s, 0))
			require.Equal(t, l.pairOff(s)+l.pairSize(), l.copyOff(s, 1)+l.copyStride())
			mark(l.pairOff(s), l.pairSize())
			for c := range l.places() {
				mark(l.queueOff(s, uint32(c)), 8)
			}
			for i := range l.Swap {
				mark(l.swapOff(s, i), headerSize+l.Size)
			}
		}
		mem := make([]byte, l.Bytes())
		l.format(mem)
		for s := range l.Slots {
			c, err := l.decodePair(mem[l.pairOff(s):][:l.pairSize()])
			require.NoError(t, err)
			require.True(t, c.whole)
			for r := range l.Records {
				now, err := l.record(&c, r)
				require.NoError(t, err)
				require.Zero(t, now.version)
				require.Empty(t, now.data)
			}
		}
	}
	for _, l := range []Layout{{}, {Slots: 1}, {Size: 1}, {Slots: 1, Size: 2 << 20}, {Slots: 1 << 30, Size: 1 << 20}, {Slots: 1, Size: 1, Clients: 5000}, {Slots: 1, Size: 1, Records: -1}} {
		require.ErrorIs(t, l.withDefaults().check(), ErrConfig, "%+v", l)
	}
}

// What a slot has beside its data stays small, however many clients there may be.
func TestSlotsDoNotGrowWithClients(t *testing.T) {
	for size := range 200 {
		l := Layout{Slots: 1, Size: 1 + size, Clients: 4096}.withDefaults()
		require.LessOrEqual(t, l.slotStride()-l.pairSize(), 256)
	}
}

// Clients without a bit among the readers share the lock with those that have one, not
// with each other, and keep writers out. What they leave when they die is taken back.
func TestReadersWithoutABit(t *testing.T) {
	b := newBenchOf(Layout{Slots: 1, Size: 8, Clients: 520})
	l, mem := &b.s.l, b.s.mem
	shared := func(owner uint16) (sharedMachine, error) {
		m := newSharedMachine(l, &tagger{owner: owner, epoch: 1}, 0, 1, nil)
		_, err := b.run(t, m)
		return m, err
	}
	write := func() error {
		m := &acquire{tags: &tagger{owner: 1, epoch: 1}, tries: 1}
		_, err := b.run(t, m)
		return err
	}
	give := func(m sharedMachine, owner uint16) {
		_, err := b.run(t, &releaser{grant: m.granted(), owner: owner})
		require.NoError(t, err)
	}
	last, err := shared(520)
	require.NoError(t, err)
	with, err := shared(512)
	require.NoError(t, err)
	_, err = shared(513)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.ErrorIs(t, write(), ErrNotAcquired)
	give(with, 512)
	require.ErrorIs(t, write(), ErrNotAcquired)
	give(last, 520)
	require.NoError(t, write())
	_, err = shared(520)
	require.ErrorIs(t, err, ErrNotAcquired)

	storeWord(mem, l.lockOff(0), 0)
	_, err = shared(513)
	require.NoError(t, err)
	_, err = b.run(t, (&recovery{region: mem}).deadSessions(l, Invite{Owner: 513, Epoch: 1}, Invite{Owner: 520, Epoch: 1}))
	require.NoError(t, err)
	require.Zero(t, loadWord(mem, l.lockOff(0)))
	require.False(t, anyBits(mem[l.readersOff(0):][:l.readersSize()]))
}

// Records of a slot are changed one by one in a copy, and the others stay.
func TestRecordsOfACopy(t *testing.T) {
	l := Layout{Slots: 1, Size: 13, Records: 3}.withDefaults()
	mem := make([]byte, l.Bytes())
	l.format(mem)
	want := [3]content{}
	for version := range uint64(6) {
		cur, err := l.decodePair(mem[l.pairOff(0):][:l.pairSize()])
		require.NoError(t, err)
		require.Equal(t, version, cur.version)
		for r := range want {
			got, err := l.record(&cur, r)
			require.NoError(t, err)
			require.Equal(t, want[r].version, got.version)
			require.Equal(t, string(want[r].data), string(got.data))
		}
		next := mem[l.copyOff(0, 1-cur.which):][:l.copyStride()]
		l.stage(next, &cur)
		for _, r := range []int{int(version) % 3, int(version+1) % 3} {
			want[r] = content{want[r].version + 1, []byte("thirteen bytes"[:version+7])}
			l.put(next, r, want[r].version, []byte("overwritten"))
			l.put(next, r, want[r].version, want[r].data)
			staged := l.staged(next, version+1)
			got, err := l.record(&staged, r)
			require.NoError(t, err)
			require.Equal(t, string(want[r].data), string(got.data))
		}
		l.seal(next, version+1)
	}
}

func TestTags(t *testing.T) {
	tg := tagger{owner: 3, epoch: 9}
	a, b := tg.next(false), tg.next(true)
	require.NotEqual(t, a, b)
	require.NotEqual(t, a, tg.next(false))
	require.NotEqual(t, b, tg.next(true))
	require.Equal(t, uint64(3<<16|9), tagIdentity(a))
	require.Equal(t, uint64(3<<16|9), tagIdentity(b))
	require.Zero(t, a&readingTag)
	require.NotZero(t, b&readingTag)
	require.Less(t, 4096, agentOwner, "no client has it")
	require.True(t, isSkipMark(skipMark(1<<32-1)))
	require.False(t, isSkipMark(queueEntry(1, 1, 0)))
	for _, at := range []uint32{0, 5, 1<<32 - 1} {
		word := uint64(7)<<32 | uint64(at)
		next, serving := tickets(word + passTicket(at))
		require.Equal(t, uint32(7), next)
		require.Equal(t, at+1, serving)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: time.Millisecond, max: 4 * time.Millisecond}
	for range 8 * backoffWindow {
		b.note(true)
	}
	require.Equal(t, b.max, b.pause)
	for range 8 * backoffWindow {
		b.note(false)
	}
	require.Equal(t, b.min, b.pause)
}

// Pauses are a slot's own, and become short again when its lock is free.
func TestPausesFollowTheSlot(t *testing.T) {
	c := &Client{cfg: Config{Retry: Retry{}.withDefaults()}, backs: map[int]*backoff{}, counts: map[int]*Counts{}}
	for range 4 * backoffWindow {
		c.pause(1, true)
	}
	long := c.pause(1, true)
	require.Equal(t, 16*c.cfg.Retry.Min, long)
	require.Equal(t, c.cfg.Retry.Min, c.pause(2, true))
	for range 2 * backoffWindow {
		j := &job{c: c, m: &acquire{}, slot: 1}
		j.m.base().count.Acquired = 1
		j.finish()
	}
	require.Less(t, c.pause(1, true), long)
}
