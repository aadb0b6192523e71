package store

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

// A change that finds no memory changes nothing; quarantine is never cut short.
func TestStoreIsFull(t *testing.T) {
	s := newStore(t, 8, Config{})
	s.Attach(1, 0)
	refused := 0
	for i := range 2000 {
		if do(s, 0, set(fmt.Sprint("k", i), string(make([]byte, 1000)))).Status == kv.NoMemory {
			refused++
		}
	}
	require.NotZero(t, refused, "a client that says nothing")
	require.EqualValues(t, refused, s.Stats().NoMemory)
	kept := ""
	for i := range 2000 {
		if kept = fmt.Sprint("k", i); do(s, 0, get(kept)).Status == kv.OK {
			break
		}
	}
	require.Equal(t, kv.NoMemory, do(s, 0, set(kept, string(make([]byte, 1500)))).Status)
	require.EqualValues(t, refused+1, s.Stats().NoMemory, "of a record that is there, too")
	counted := uint64(0)
	for _, r := range s.Ranges() {
		counted += r.NoMemory
	}
	require.Equal(t, s.Stats().NoMemory, counted)
	require.Equal(t, make([]byte, 1000), do(s, 0, get(kept)).Value)
	require.NotZero(t, s.Stats().Evicted)
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Applied: s.log.last, Quiet: s.log.last}))
	require.Zero(t, s.Stats().Arena.Quarantine)
	require.Equal(t, kv.OK, do(s, 0, set("k", string(make([]byte, 1000)))).Status)
	require.Equal(t, kv.TooLarge, do(s, 0, set("k", string(make([]byte, simPage)))).Status)
	require.LessOrEqual(t, s.Stats().Arena.Live, s.limit())
}

// The array that a table has left is kept while a client may READ buckets of it.
func TestStoreKeepsOldTables(t *testing.T) {
	freed := 0
	s := newStore(t, 8, Config{FreeTable: func([]byte) { freed++ }})
	s.Attach(1, 0)
	for i := range 100 {
		do(s, 0, set(fmt.Sprint("k", i), "v"))
	}
	s.Tick(0, 0)
	require.Zero(t, freed)
	require.NoError(t, s.Heard(1, wire.Horizon{Epoch: 7, Quiet: s.log.last}))
	require.NotZero(t, freed)
}

// Values of 1 KiB after much churn of all sizes, in the whole arena.
func TestStoreChurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	s := newStore(t, 24, Config{})
	for i := range 3000 {
		do(s, uint64(i), set(fmt.Sprint("k", rng.IntN(5000)), string(make([]byte, rng.IntN(3000)))))
	}
	for i := range 3000 {
		require.Equal(t, kv.OK, do(s, uint64(3000+i), set(fmt.Sprint("v", i), string(make([]byte, 1024)))).Status)
	}
	stored := 0
	for _, it := range s.items {
		if it.version != 0 {
			stored += len(wire.PeekRecord(s.arena.Bytes(it.place)).Value)
		}
	}
	perByte := float64(s.Stats().Arena.Total) / float64(stored)
	t.Logf("%.3f bytes of arena for each byte of value", perByte)
	require.Less(t, perByte, 1.3)
}

// A day of churn in virtual time on an arena that is full: values of 1 KiB take at most 1.25
// bytes of memory for each of theirs, also after a time in which others were stored.
func TestArenaAfterADay(t *testing.T) {
	const pages, day = 64, 24 * 3600 * 1000
	s := newStore(t, pages, Config{Depth: 8})
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	value := make([]byte, 64<<10)
	const each = 700 // ms between changes
	const keys = 2 * pages * simPage / 1024
	for now := uint64(1); now < day; now += each {
		n := 1024
		if now < day/2 { // what was stored until noon is of any length
			n = rng.IntN(4096)
		}
		q := set("key"+strconv.Itoa(rng.IntN(keys)), "")
		q.Value = value[:n]
		if rng.IntN(3) == 0 {
			q.Expiry = int64(rng.IntN(3600_000))
		}
		if rng.IntN(20) == 0 {
			q = wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: q.Key}}
		}
		if a := s.Do(now, &q); a.Status != kv.OK && a.Status != kv.NotFound {
			require.Equal(t, kv.OK, a.Status)
		}
		s.Tick(now, 4)
	}
	st := s.Stats()
	require.NotZero(t, st.Evicted)
	stored := 0
	for id := range s.items {
		if it := &s.items[id]; it.version != 0 {
			r := wire.PeekRecord(s.arena.Bytes(it.place))
			stored += len(r.Key) + len(r.Value)
		}
	}
	ratio := float64(st.Arena.Total) / float64(stored)
	t.Logf("%d records, %d evicted, %d expired: %.3f bytes of the arena for each that is stored", st.Items, st.Evicted, st.Expired, ratio)
	require.LessOrEqual(t, ratio, 1.25)
}

// What neither a message nor a snapshot can carry is refused, whatever the arena takes.
func TestStoreTakesNoValueThatNobodyCanHave(t *testing.T) {
	a, err := arena.New(wire.MaxValue + 1<<20) // and no memory: that is looked for later
	require.NoError(t, err)
	s, err := New(Config{
		Epoch: 7, Arena: a, MaxValue: wire.MaxValue + 1, FreeTable: func([]byte) {},
		AllocTable: func(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{Key: 1} },
	})
	require.NoError(t, err)
	q := wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("k"), Value: make([]byte, wire.MaxValue+1)}}
	require.Equal(t, kv.TooLarge, s.Do(1, &q).Status)
	q.Value = q.Value[1:]
	require.Equal(t, kv.NoMemory, s.Do(1, &q).Status)
}

// A part of the memory stays free, for what is in quarantine, and what is evicted for that is
// counted.
func TestReserve(t *testing.T) {
	s := newStore(t, 32, Config{})
	const n = 5000
	for i := range n {
		require.Equal(t, kv.OK, do(s, 1, set(strconv.Itoa(i), string(make([]byte, 900)))).Status)
		require.LessOrEqual(t, s.Stats().Arena.Live, 31*simPage)
	}
	require.Greater(t, s.Stats().Arena.Live, 30*simPage)
	require.Equal(t, uint64(n-s.Stats().Items), s.Stats().Evicted)
}
