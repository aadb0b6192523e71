//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// initiator is one at the near end of the wire, which takes a busy machine for no dead target.
func initiator(t *testing.T, contexts int) *dc.Initiator {
	t.Helper()
	return initiatorAs(t, dc.InitiatorConfig{Contexts: contexts, AckTimeout: 500 * time.Millisecond})
}

// hasty is one that soon takes a target for dead.
func hasty(t *testing.T) *dc.Initiator {
	t.Helper()
	return initiatorAs(t, dc.InitiatorConfig{Contexts: 1, ConnectTimeout: 2 * time.Second})
}

func initiatorAs(t *testing.T, cfg dc.InitiatorConfig) *dc.Initiator {
	t.Helper()
	ends := lab.Require(t, 2)
	dev, err := verbs.Open(ends[0].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := dev.FindGID(verbs.GIDQuery{Addr: ends[0].Addr})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	cfg.PD, cfg.GID = pd, gid
	i, err := dc.NewInitiator(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, i.Close())
		require.NoError(t, pd.Close(), "nothing is left there")
		require.NoError(t, dev.Close())
	})
	return i
}

var byDC = server.Config{Lease: quiet, DC: server.DCConfig{Responders: 4}}

// A hit through a shared initiator is one READ, and nothing else crosses the wire by RDMA; the server's
// program knows of none.
func TestHitThroughAnInitiatorIsOneREAD(t *testing.T) {
	s := serve(t, byDC)
	i := initiator(t, 2)
	c, ctx := dial(t, s.Addr().String(), cache.Config{DC: i}), within(t)
	value := bytes.Repeat([]byte("v"), 300)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: value, Flags: 7}, 0))
	whole(t, c, 1)
	require.Equal(t, cache.DC, c.Stats().Transport)
	_, err := c.Get(ctx, key(1)) // which attaches
	require.NoError(t, err)
	packets := watch(t)
	packets.take()
	before := c.Stats()
	const n = 50
	hitEach(t, c, n, value)
	seen := packets.take()
	require.Equal(t, n, seen[[2]byte{readRequest, 0}])
	require.Equal(t, n, seen[[2]byte{readResponse, 1}])
	require.Zero(t, sends(seen))
	st := c.Stats()
	require.Equal(t, [4]uint64{n, n, 0, 0}, [4]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls, st.Blocked})
	require.Zero(t, s.Stats().Gets)
	require.Equal(t, server.DCStats{Clients: 1, Attached: 1}, s.Stats().DC)
	_, err = c.Get(ctx, key(2))
	require.ErrorIs(t, err, cache.ErrNotFound, "a miss is confirmed")
	// A server without a target is one that the client has queue pairs to.
	plain := listen(t, server.Config{Lease: quiet})
	require.Equal(t, cache.RDMA, dial(t, plain.Addr().String(), cache.Config{DC: i}).Stats().Transport)
}

// Through the target no client WRITEs a record.
func TestTargetIsForREADs(t *testing.T) {
	s := serve(t, byDC)
	place := set(t, s, key(1), []byte("record")).Place
	r := strand(t, s)
	require.Error(t, r.write(r.regions[place.Region()].At(uint64(place.Offset()))))
	it, err := dial(t, s.Addr().String(), cache.Config{}).Get(within(t), key(1))
	require.NoError(t, err)
	require.Equal(t, "record", string(it.Value))
}

// Many keys are READ together, long values in parts, and keys that the map has no room for by READs of the
// server's buckets.
func TestManyAndLongThroughAnInitiator(t *testing.T) {
	s := serve(t, byDC)
	i, ctx := initiator(t, 2), within(t)
	c := dial(t, s.Addr().String(), cache.Config{DC: i})
	const n = 80
	var keys [][]byte
	for k := range n {
		keys = append(keys, key(k))
		require.NoError(t, c.Set(ctx, key(k), cache.Item{Value: []byte(strconv.Itoa(k))}, 0))
	}
	long := bytes.Repeat([]byte("long"), 50_000)
	require.NoError(t, c.Set(ctx, []byte("long"), cache.Item{Value: long}, 0))
	whole(t, c, n+1)
	before := c.Stats()
	for k, r := range c.GetMulti(ctx, keys, nil) {
		require.NoError(t, r.Err)
		require.Equal(t, strconv.Itoa(k), string(r.Value))
	}
	it, err := c.Get(ctx, []byte("long"))
	require.NoError(t, err)
	require.Equal(t, long, it.Value)
	st := c.Stats()
	require.Equal(t, [3]uint64{n + 1, 0, 0}, [3]uint64{st.Hits - before.Hits, st.Calls - before.Calls, st.Blocked})
	require.Greater(t, st.Reads-before.Reads, uint64(n+2), "the long one in parts")

	small := dial(t, s.Addr().String(), cache.Config{DC: i, MapBytes: 10 * 30})
	for end := time.Now().Add(stuck); small.Stats().Entries == 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	before = small.Stats()
	for k := range n {
		it, err := small.Get(ctx, key(k))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(k), string(it.Value))
	}
	st = small.Stats()
	require.EqualValues(t, n, st.Hits-before.Hits)
	require.NotZero(t, st.Probes)
	require.Zero(t, st.Blocked)
	// The first of two that know a target by one initiator closes.
	require.NoError(t, c.Close())
	for range 3 {
		_, err = small.Get(ctx, key(1))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, small.Stats().Blocked, uint64(1))
	require.Less(t, uint64(0), small.Stats().Hits-st.Hits)
}

// held is what this process has of a kind at the near end of the wire, and its bytes or entries.
func held(t *testing.T, kind string) (n int, size uint64) {
	t.Helper()
	now, stop := context.WithCancel(context.Background())
	stop()
	all, err := lab.Leftovers(now)
	require.NoError(t, err)
	for _, r := range all {
		if r.Device == lab.Require(t, 2)[0].Device && r.Kind == kind {
			n, size = n+1, size+r.Size
		}
	}
	return n, size
}

// A client of many servers has the queue pairs of its initiator, and no others; and hits of them all, also
// when there are more servers than contexts. A server that is gone does not affect the others.
func TestManyServersThroughOneInitiator(t *testing.T) {
	const servers, contexts = 4, 2
	lab.NoLeftovers(t)
	var all []*server.Server
	var addresses []string
	cfg := byDC
	cfg.Key = bytes.Repeat([]byte("k"), 32)
	for range servers {
		s := listen(t, cfg)
		all, addresses = append(all, s), append(addresses, s.Addr().String())
	}
	i, ctx := initiator(t, contexts), within(t)
	queuePairs, _ := held(t, "qp")
	queues, _ := held(t, "cq")
	_, registered := held(t, "mr")
	require.GreaterOrEqual(t, queuePairs, i.QueuePairs())
	c := dialCluster(t, cache.ClusterConfig{Config: cache.Config{DC: i, Key: cfg.Key}}, addresses...)
	var keys [][]byte
	for k := range 32 {
		keys = append(keys, key(k))
		require.NoError(t, c.Set(ctx, key(k), cache.Item{Value: []byte(strconv.Itoa(k))}, 0))
	}
	share := shares(t, c, keys, addresses...)
	for range 2 {
		for k, r := range c.GetMulti(ctx, keys, nil) {
			require.NoError(t, r.Err)
			require.Equal(t, strconv.Itoa(k), string(r.Value))
			it, err := c.Get(ctx, keys[k])
			require.NoError(t, err)
			require.Equal(t, r.Value, it.Value)
		}
	}
	now, _ := held(t, "qp")
	require.Equal(t, queuePairs, now, "%d servers take none", servers)
	now, _ = held(t, "cq")
	require.Equal(t, queues, now)
	_, more := held(t, "mr")
	t.Logf("%d registered bytes for each server", (more-registered)/servers)
	require.LessOrEqual(t, (more-registered)/servers, uint64(64<<10))
	for n, st := range c.Stats() {
		require.Equal(t, cache.DC, st.Transport)
		require.EqualValues(t, 4*len(share[n]), st.Hits)
		require.Zero(t, st.Blocked)
	}
	require.NoError(t, all[0].Close())
	for end := time.Now().Add(stuck); c.Stats()[0].Connected; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	for _, k := range share[1] {
		_, err := c.Get(ctx, k)
		require.NoError(t, err)
	}
	_, err := c.Get(ctx, share[0][0])
	require.ErrorIs(t, err, cache.ErrUnavailable)
	require.EqualValues(t, 5*len(share[1]), c.Stats()[1].Hits)
}

// While the server's process is stopped hits go on. When it is killed and comes back there is another target.
func TestHitsThroughAnInitiatorWithoutTheServer(t *testing.T) {
	lab.NoLeftovers(t)
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	c, ctx := dial(t, p.address, cache.Config{DC: initiator(t, 1)}), within(t)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("here")}, 0))
	whole(t, c, 1)
	get := func() cache.Item {
		it, err := c.Get(ctx, key(1))
		require.NoError(t, err)
		return it
	}
	get()
	p.stop()
	before := c.Stats()
	for range 50 {
		require.Equal(t, "here", string(get().Value))
	}
	require.EqualValues(t, 50, c.Stats().Hits-before.Hits)
	p.signal(syscall.SIGCONT)
	p.kill()
	for end := time.Now().Add(stuck); c.Stats().Connected; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end))
	}
	start(t, p.address)
	_, err := c.Get(ctx, key(1)) // until there is a connection to the next life
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("again")}, 0))
	whole(t, c, 1)
	before = c.Stats()
	require.Equal(t, "again", string(get().Value))
	require.EqualValues(t, 1, c.Stats().Hits-before.Hits)
	require.Equal(t, [2]any{cache.DC, uint64(2)}, [2]any{c.Stats().Transport, c.Stats().Sessions})
}

// A server that hangs for longer than a host may be silent, with all that its clients could ask for waiting: hits go
// on through the initiator, and what was asked for is carried out when it goes on. No connection has ended.
func TestServerHangsWithFullWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	lab.NoLeftovers(t)
	t.Setenv(lease, "30s")
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	c, ctx := dial(t, p.address, cache.Config{DC: initiator(t, 1)}), within(t)
	plain, err := cache.Dial(ctx, p.address, cache.Config{Dialer: tcpOnly()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	require.NoError(t, c.Set(ctx, key(1), cache.Item{Value: []byte("here")}, 0))
	whole(t, c, 1)
	_, err = c.Get(ctx, key(1))
	require.NoError(t, err)
	p.stop()
	stopped := time.Now()
	changed := make(chan error)
	const changes = 80
	for n := range changes {
		go func() {
			changed <- []*cache.Client{c, plain}[n%2].Set(ctx, key(2+n%4), cache.Item{Value: make([]byte, 512<<10)}, 0)
		}()
	}
	before := c.Stats()
	for time.Since(stopped) < 15*time.Second {
		it, err := c.Get(ctx, key(1))
		require.NoError(t, err)
		require.Equal(t, "here", string(it.Value))
		time.Sleep(time.Millisecond)
	}
	st := c.Stats()
	require.Greater(t, st.Hits, before.Hits+100)
	require.Zero(t, st.Blocked)
	p.signal(syscall.SIGCONT)
	for range changes {
		require.NoError(t, <-changed)
	}
	require.Equal(t, [2]uint64{1, 1}, [2]uint64{c.Stats().Sessions, plain.Stats().Sessions})
}
