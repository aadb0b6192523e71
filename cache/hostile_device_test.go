//go:build linux

package cache_test

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/hook"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// raw is a client that does what a test wants.
type raw struct {
	t     *testing.T
	link  *verbs.Link
	reads *verbs.Link
	read  *verbs.Requester
	conn  *link.Messages
	mr    *verbs.MR
}

// connect makes a client that holds so many frames.
func connect(t *testing.T, s *server.Server, frames int) *raw {
	t.Helper()
	return connectAs(t, s.Addr().String(), frames, "", nil)
}

func connectAs(t *testing.T, address string, frames int, tenant string, key []byte) *raw {
	t.Helper()
	return connectBy(t, verbs.LinkConfig{Dialer: near(t, cache.Config{}).Dialer}, address, frames, tenant, key)
}

func connectBy(t *testing.T, by verbs.LinkConfig, address string, frames int, tenant string, key []byte) *raw {
	t.Helper()
	r := &raw{t: t}
	cfg := link.Config(by, frames)
	var seal greet.Seal
	cfg.Greet = func(ctx context.Context, conn net.Conn) (err error) {
		seal, err = link.Greet(ctx, conn, greet.Hello{Transport: greet.RDMA, Tenant: tenant}, key, nil)
		return err
	}
	cfg.Setup = func(l *verbs.Link) (offer verbs.Offer, err error) {
		r.reads, offer, err = link.Prepare(l, verbs.LinkConfig{PD: l.PD()}, wire.Hello{Frames: uint32(frames)}, nil, seal)
		return offer, err
	}
	var err error
	r.link, err = verbs.DialLink(within(t), address, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.reads.Close()); require.NoError(t, r.link.Close()) })
	hello, err := link.Join(r.link, r.reads, verbs.ConnectConfig{}, seal)
	require.NoError(t, err)
	r.read, err = r.reads.Requester()
	require.NoError(t, err)
	r.conn, err = link.NewMessages(r.link, hello, frames, 0)
	require.NoError(t, err)
	r.mr, err = r.link.AllocMR(4096, verbs.MRConfig{})
	require.NoError(t, err)
	return r
}

// set stores a record, and returns where it is.
func set(t *testing.T, s *server.Server, key, value []byte) wire.Entry {
	t.Helper()
	a, err := s.Do(within(t), &kv.Request{Op: kv.OpSet, Key: key, Value: value})
	require.NoError(t, err)
	require.Equal(t, kv.OK, a.Status)
	return hook.Entry(s, key)
}

// record READs what an entry points at.
func (r *raw) record(e *wire.Entry, key []byte) (wire.Record, error) {
	n := e.Place.Length()
	if err := r.read.Read(within(r.t), r.link.Regions()[e.Place.Region()].At(uint64(e.Place.Offset())), r.mr.SGE(0, n)); err != nil {
		return wire.Record{}, err
	}
	return wire.Validate(r.mr.Bytes()[:n], e, key)
}

// A client that does not say that it is done with what was freed is cut off within the
// lease: then its READs fail, and what was freed is used again.
func TestLateClientIsCutOff(t *testing.T) {
	const lease = 400 * time.Millisecond
	s := serve(t, server.Config{Lease: lease})
	r := connect(t, s, 64)
	require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond)
	e := set(t, s, key(1), []byte("old"))
	rec, err := r.record(&e, key(1))
	require.NoError(t, err)
	require.Equal(t, "old", string(rec.Value))

	begin := time.Now()
	set(t, s, key(1), []byte("new"))
	_, err = r.record(&e, key(1))
	require.ErrorIs(t, err, wire.Dead, "the tombstone, in quarantine")
	require.NotZero(t, s.Stats().Quarantine)
	require.Eventually(t, func() bool { st := s.Stats(); return st.Clients == 0 && st.Quarantine == 0 }, stuck, time.Millisecond)
	require.Greater(t, time.Since(begin), lease/4)
	require.Equal(t, uint64(1), s.Stats().Cut)
	_, err = r.record(&e, key(1))
	require.Error(t, err, "nobody answers")
	require.Error(t, r.link.QP().Err())

	c := dial(t, s.Addr().String(), cache.Config{})
	set(t, s, key(1), []byte("newer"))
	require.Eventually(t, func() bool { return s.Stats().Quarantine == 0 }, stuck, time.Millisecond)
	time.Sleep(2 * lease)
	require.Equal(t, uint64(1), c.Stats().Sessions, "who says how far it is stays")
	require.Equal(t, uint64(1), s.Stats().Cut)
}

// A client that has the device end its queue pair, by a request that is refused, and keeps the connection by
// TCP, is forgotten at once, and not when it is sent something next.
func TestClientThatEndsItsQueuePair(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	r := connect(t, s, 64)
	require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond)
	_, err := r.conn.Next(within(t)) // the map, which is all that it is sent
	require.NoError(t, err)
	q, err := r.link.Requester()
	require.NoError(t, err)
	// Records are in another protection domain than messages.
	require.Error(t, q.Write(within(t), r.link.Regions()[0].At(0), r.mr.SGE(0, 8)))
	require.Eventually(t, func() bool { return s.Stats().Clients == 0 }, stuck, time.Millisecond)
}

// A client that ends while it is sent the map leaves nothing behind, and holds up no other client.
func TestClientEndsInTheMiddleOfTheMap(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet})
	for i := range 2000 {
		set(t, s, key(i), []byte("value"))
	}
	for range 3 {
		r := connect(t, s, 1) // what it does not take, the server cannot send
		b, err := r.conn.Next(within(t))
		require.NoError(t, err)
		h, err := wire.ReadHeader(b)
		require.NoError(t, err)
		require.Equal(t, wire.KindMap, h.Kind)
		require.NoError(t, r.reads.Close())
		require.NoError(t, r.link.Close())
	}
	set(t, s, key(1), []byte("another"))
	require.Eventually(t, func() bool {
		st := s.Stats()
		return st.Clients == 0 && st.Quarantine == 0
	}, stuck, time.Millisecond)
	c := dial(t, s.Addr().String(), cache.Config{})
	whole(t, c, s.Stats().Items)
}

// A client that is further behind than the log reaches gets the map again.
func TestGapMeansANewSnapshot(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet, Log: 64})
	r := connect(t, s, 1) // holds one frame, and takes none for now
	require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond)
	const n = 600
	for i := range n {
		set(t, s, key(i%500), []byte("value"))
	}
	m := mirror.New(mirror.Config{})
	maps := 0
	for ctx := within(t); maps < 2 || !m.Whole() || m.Len() != s.Stats().Items; {
		b, err := r.conn.Next(ctx)
		require.NoError(t, err, "%d maps, %d entries", maps, m.Len())
		h, err := wire.ReadHeader(b)
		require.NoError(t, err)
		switch h.Kind {
		case wire.KindMap:
			begin, err := wire.ReadMap(b)
			require.NoError(t, err)
			m.Begin(&begin)
			maps++
		case wire.KindChunk:
			var c wire.Chunk
			require.NoError(t, c.Read(b))
			require.NoError(t, m.Chunk(&c))
		case wire.KindDeltas:
			var d wire.Deltas
			require.NoError(t, d.Read(b))
			require.NoError(t, m.Deltas(&d))
		}
	}
	require.InDelta(t, 500, m.Len(), 3, "now and then the buckets of a key are full")
}

func noise(t *testing.T) []byte {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	b := make([]byte, 3000)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// hostileMessages are what a server that takes values of 100,000 bytes refuses.
func hostileMessages(s *server.Server, noise []byte) map[string][]byte {
	long := wire.AppendRequest(nil, &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: key(1), Value: make([]byte, 1_000_000)}})
	return map[string][]byte{
		"noise":                       noise,
		"a message of the server's":   wire.AppendReply(nil, &wire.Reply{Reply: kv.Reply{Status: kv.OK}}),
		"a horizon of the future":     wire.AppendHorizon(nil, &wire.Horizon{Epoch: s.Epoch(), Applied: 1 << 40, Quiet: 1 << 40}),
		"a horizon of another epoch":  wire.AppendHorizon(nil, &wire.Horizon{Epoch: s.Epoch() + 1, Applied: 1, Quiet: 1}),
		"a request that is too long":  long[:4096],
		"a request that is malformed": wire.AppendRequest(nil, &wire.Request{Request: kv.Request{Op: 99}}),
	}
}

// Whatever a client sends or asks of the device, the server ends that client alone, and
// its memory stays as it is.
func TestHostileClients(t *testing.T) {
	s := serve(t, server.Config{Lease: quiet, MaxValue: 100_000})
	honest, ctx := dial(t, s.Addr().String(), cache.Config{}), within(t)
	require.NoError(t, honest.Set(ctx, key(1), cache.Item{Value: []byte("value")}, 0))
	whole(t, honest, 1)
	for name, m := range hostileMessages(s, noise(t)) {
		r := connect(t, s, 8)
		_ = r.conn.Write(ctx, m) // it may be ended before all is sent
		select {
		case <-r.link.QP().Done():
		case <-ctx.Done():
			t.Fatal(name)
		}
		require.Eventually(t, func() bool { return s.Stats().Clients == 1 }, stuck, time.Millisecond, name)
	}
	region := connect(t, s, 8).link.Regions()[0]
	for name, try := range map[string]func(*raw, context.Context) error{
		"WRITE":     func(r *raw, ctx context.Context) error { return r.read.Write(ctx, region.At(0), r.mr.SGE(0, 64)) },
		"FETCH_ADD": func(r *raw, ctx context.Context) error { _, err := r.read.FetchAdd(ctx, region.At(0), 1); return err },
		"READ too far": func(r *raw, ctx context.Context) error {
			return r.read.Read(ctx, region.At(region.Length-8), r.mr.SGE(0, 64))
		},
		"READ by a SEND's queue pair": func(r *raw, ctx context.Context) error {
			calls, err := r.link.Requester()
			require.NoError(t, err)
			return calls.Read(ctx, region.At(0), r.mr.SGE(0, 64))
		},
	} {
		r := connect(t, s, 8)
		require.Error(t, try(r, ctx), name)
	}
	it, err := honest.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "value", string(it.Value))
	require.NoError(t, honest.Set(ctx, key(2), cache.Item{}, 0))
	require.Equal(t, uint64(1), honest.Stats().Sessions)
}
