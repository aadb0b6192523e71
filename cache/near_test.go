package cache

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// offline returns a client and its session, which has a map and a near cache, and no
// connection: what would need one panics.
func offline(t testing.TB, cfg Config) (*Client, *session) {
	c, err := newClient("nobody", cfg)
	require.NoError(t, err)
	s := &session{c: c, begun: time.Now(), m: mirror.New(mirror.Config{}), wake: make(chan struct{}, 1), calls: map[uint64]*call{}}
	s.near, err = newNear(&c.cfg)
	require.NoError(t, err)
	s.m.Begin(&wire.Map{Epoch: 1, Seq: 0})
	s.m.Replied(1000, 0, 0)
	require.NoError(t, s.m.Deltas(&wire.Deltas{Epoch: 1, First: 1, Clock: 1000}))
	c.set(s, nil)
	return c, s
}

// keep has a record READ.
func (s *session) keepRecord(key string, version uint64, value []byte, expiry uint64) wire.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := wire.Entry{Fingerprint: s.m.Fingerprint([]byte(key)), Version: version, Epoch: 1}
	s.m.Learn(e, 1<<40)
	r := wire.Record{Key: []byte(key), Value: value, Version: version, Epoch: 1, Flags: 7, CAS: version, Expiry: expiry}
	s.judge(&r, nil, &e, s.clock(), s.mark(e.Fingerprint))
	return e
}

func (s *session) copyOf(key string, now int64) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copied(s.m.Fingerprint([]byte(key)), []byte(key), now)
}

// A copy is good for as long as the map has its entry and the server was heard lately.
func TestNearCopies(t *testing.T) {
	c, s := offline(t, Config{NearBytes: 1 << 20, NearStale: time.Minute})
	e := s.keepRecord("key", 3, []byte("value"), 0)
	it, err := c.GetInto(t.Context(), []byte("key"), make([]byte, 10))
	require.NoError(t, err)
	require.Equal(t, Item{Value: []byte("value"), Flags: 7, CAS: 3}, it)
	it, err = c.Get(t.Context(), []byte("key"))
	require.NoError(t, err)
	it.Value[0] = 'x' // the caller's own
	r := c.GetMulti(t.Context(), [][]byte{[]byte("key")}, nil)[0]
	require.NoError(t, r.Err)
	require.Equal(t, Item{Value: []byte("value"), Flags: 7, CAS: 3}, r.Item)
	_, err = c.GetInto(t.Context(), []byte("key"), make([]byte, 4))
	require.ErrorIs(t, err, ErrShort)
	require.Equal(t, [2]uint64{4, 0}, [2]uint64{c.Stats().NearHits, c.Stats().Hits})

	now := s.clock()
	require.NotNil(t, s.copyOf("key", now))
	require.Nil(t, s.copyOf("key", now+61_000), "the server was not heard for a minute")
	require.Nil(t, s.copyOf("other", now))
	s.keepRecord("brief", 4, nil, 1000+30_000)
	require.NotNil(t, s.copyOf("brief", now+20_000))
	require.Nil(t, s.copyOf("brief", now+40_000), "it has expired")
	require.NoError(t, s.m.Deltas(&wire.Deltas{Epoch: 1, First: 1, List: []wire.Delta{{Change: wire.ChangeGone, Gone: 3, Entry: e}}}))
	require.Nil(t, s.copyOf("key", now), "the server has told of a change")
	s.keepRecord("key", 5, []byte("newer"), 0)
	require.Equal(t, "newer", string(s.copyOf("key", now).it.Value))

	// A record that was seen to be no more has no copy, even if its entry comes back.
	e.Version = 5
	s.mu.Lock()
	s.judge(&wire.Record{}, wire.Dead, &e, now, s.mark(e.Fingerprint))
	s.mu.Unlock()
	s.m.Learn(e, 1<<40)
	require.Nil(t, s.copyOf("key", now))

	// Nor has one a copy that was READ while others saw it end.
	s.m.Forget(&e)
	r2 := wire.Record{Key: []byte("key"), Version: 5, Epoch: 1}
	s.mu.Lock()
	require.Equal(t, mirror.Hit, s.judge(&r2, nil, &e, now, s.mark(e.Fingerprint)))
	s.mu.Unlock()
	s.m.Learn(e, 1<<40)
	require.Nil(t, s.copyOf("key", now))

	// Another key of the same fingerprint.
	s.near.copies.Set(s.m.Fingerprint([]byte("twin")), &kept{entry: e, key: []byte("key")})
	require.Nil(t, s.copyOf("twin", now))
}

// Of two READs of a record the one sees it alive, and the other one finds that there is another record already. If
// that is said first, what the first one brings makes no copy, also when a reply, or a third READ, that is older
// has the map know of the record again: one client's reads do not go back in time.
func TestNearCopiesDoNotGoBack(t *testing.T) {
	_, s := offline(t, Config{NearBytes: 1 << 20, NearStale: time.Minute})
	key := []byte("key")
	f := s.m.Fingerprint(key)
	old, next := wire.Entry{Fingerprint: f, Version: 3, Epoch: 1}, wire.Entry{Fingerprint: f, Version: 4, Epoch: 1}
	read := func(e wire.Entry, refusal error, begun uint32) mirror.Verdict {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := wire.Record{Key: key, Version: e.Version, Epoch: 1}
		return s.judge(&r, refusal, &e, s.clock(), begun)
	}
	s.m.Learn(old, 1<<40)
	begun := s.mark(f)
	require.Equal(t, mirror.Ask, read(old, wire.Dead, s.mark(f)))
	s.m.Learn(old, 1<<40)
	require.Equal(t, mirror.Hit, read(old, nil, begun))
	require.Nil(t, s.copyOf("key", s.clock()), "it was seen to be no more")
	require.Equal(t, mirror.Hit, read(old, nil, s.mark(f)))
	require.NotNil(t, s.copyOf("key", s.clock()), "a READ that began later saw it alive")

	// The next record is found where the map does not have it: in its bucket, or by a tombstone.
	begun = s.mark(f)
	require.Equal(t, mirror.Hit, read(next, nil, s.mark(f)))
	require.Nil(t, s.copyOf("key", s.clock()), "there is another one")
	require.Equal(t, mirror.Hit, read(old, nil, begun))
	require.Nil(t, s.copyOf("key", s.clock()), "it was READ before that")
	s.m.Learn(next, 1<<40)
	require.Equal(t, mirror.Hit, read(next, nil, s.mark(f)))
	require.NotNil(t, s.copyOf("key", s.clock()))
	var none session
	require.Zero(t, none.mark(f)) // without a near cache
}

// Memory is bounded, and records that would take much of it have no copy.
func TestNearMemory(t *testing.T) {
	_, s := offline(t, Config{NearBytes: 100_000, NearStale: time.Minute})
	for i := range 1000 {
		s.keepRecord(fmt.Sprint(i), uint64(i+1), make([]byte, 1000), 0)
	}
	s.keepRecord("long", 5000, make([]byte, 13_000), 0)
	require.Nil(t, s.copyOf("long", s.clock()))
	s.near.copies.CleanUp()
	require.LessOrEqual(t, s.near.copies.WeightedSize(), uint64(100_000))
	require.NotZero(t, s.near.copies.EstimatedSize())
}

// The server is asked for its clock when what is known of it is too vague for copies, and
// no more often than copies may be old.
func TestNearAsksForTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, but what is said to
		_, s := offline(t, Config{NearBytes: 1 << 20, NearStale: 100 * time.Millisecond})
		ask := func() int {
			s.askClock()
			return len(s.calls)
		}
		require.Zero(t, ask(), "it has just been heard")
		s.begun = s.begun.Add(-time.Minute)
		require.Equal(t, 1, ask())
		require.Equal(t, 1, ask())
		q, err := wire.ReadRequest(s.out)
		require.NoError(t, err)
		require.True(t, q.ReadOnly)
		a := wire.Reply{ID: q.ID, Epoch: 1, Reply: kv.Reply{Status: kv.NotFound, Clock: 60_000}}
		require.NoError(t, s.replied(wire.AppendReply(nil, &a)))
		require.NoError(t, s.m.Deltas(&wire.Deltas{Epoch: 1, First: 1, Clock: 60_000}))
		require.Less(t, s.m.Age(s.clock()), uint64(50))
		s.begun = s.begun.Add(-time.Minute)
		require.Equal(t, 1, ask(), "answered, and asked again")
		var none session
		none.askClock() // without a near cache
	})
}

func TestNearHitDoesNotAllocate(t *testing.T) {
	c, s := offline(t, Config{NearBytes: 1 << 20, NearStale: time.Hour})
	s.keepRecord("a key of usual length", 3, make([]byte, 64), 0)
	key, dst := []byte("a key of usual length"), make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		if _, err := c.GetInto(t.Context(), key, dst); err != nil {
			t.Fatal(err)
		}
	}))
}

// spent is the time that processors have spent on this process: what others have no part in.
func spent(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkNearHit(b *testing.B) {
	for _, bench := range []struct {
		name   string
		bytes  int
		expiry uint64
	}{{"64B", 64, 0}, {"64B/expiring", 64, 1 << 40}, {"1KiB", 1024, 0}} {
		b.Run(bench.name, func(b *testing.B) {
			c, s := offline(b, Config{NearBytes: 16 << 20, NearStale: time.Hour})
			const n = 1024
			var keys [n][]byte
			for i := range n {
				keys[i] = fmt.Appendf(nil, "user:%07d", i)
				s.keepRecord(string(keys[i]), uint64(i+1), make([]byte, bench.bytes), bench.expiry)
			}
			dst, ctx := make([]byte, bench.bytes), b.Context()
			b.ReportAllocs()
			i := 0
			begin := spent(b)
			for b.Loop() {
				if _, err := c.GetInto(ctx, keys[i%n], dst); err != nil {
					b.Fatal(err)
				}
				i += 13
			}
			b.ReportMetric(float64(spent(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// No copy of a session contradicts what a caller has learned by the session that it replaced, and may not have told
// it: neither the caller's change nor what it saw. So a session uses no copies until the one before has ended, and
// no copy is older than that.
func TestNearCopiesAfterAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stale = 10 * time.Second
		c, first := offline(t, Config{NearBytes: 1 << 20, NearStale: stale})
		_, second := offline(t, c.cfg)
		_, third := offline(t, c.cfg)
		for _, s := range []*session{first, second, third} {
			s.c, s.over, s.idle = c, make(chan struct{}), make(chan struct{})
			s.live, s.stop = context.WithCancel(c.ctx)
			s.keepRecord("key", 3, []byte("value"), 0)
		}
		heard := func(s *session) *kept {
			s.mu.Lock()
			clock := uint64(1000 + s.clock())
			s.m.Replied(clock, s.clock(), s.clock())
			require.NoError(t, s.m.Deltas(&wire.Deltas{Epoch: 1, First: 1, Clock: clock}))
			s.mu.Unlock()
			return s.copyOf("key", s.clock())
		}
		require.NotNil(t, heard(first))
		require.NotNil(t, heard(second))
		q := wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}}
		k, err := first.start(t.Context(), &q)
		require.NoError(t, err)
		over := c.replace(first, second, closed)
		require.Same(t, second, c.now.Load())
		require.Nil(t, heard(second))
		over = c.replace(second, third, over) // which has nothing under way
		time.Sleep(drained / 2)
		require.True(t, second.ended.Load())
		require.False(t, first.ended.Load())
		require.Nil(t, heard(third))
		require.NoError(t, first.replied(wire.AppendReply(nil, &wire.Reply{ID: k.id, Reply: kv.Reply{Status: kv.OK}})))
		<-over
		require.True(t, first.ended.Load())
		require.Nil(t, heard(third))
		time.Sleep(stale - time.Millisecond)
		require.Nil(t, heard(third))
		time.Sleep(2 * time.Millisecond)
		require.NotNil(t, heard(third))
		var none session
		none.copiesFrom(1) // without a near cache
	})
}
