//go:build linux

package cache_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

var (
	redKey  = []byte("the key of the red tenant")
	blueKey = []byte("the key of the blue one")
)

// tenants starts servers of two tenants at one address of the far end.
func tenants(t *testing.T, names ...string) *server.Tenants {
	t.Helper()
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	cfg := server.Config{Memory: 2 << 20, Lease: quiet, Names: names}
	all, err := server.ListenTenants(context.Background(), netip.AddrPortFrom(ends[1].Addr, 0).String(), []server.Tenant{
		{Name: "red", Key: redKey, Config: cfg}, {Name: "blue", Key: blueKey, Config: cfg},
	}, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- all.Serve(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, all.Close())
		require.ErrorIs(t, <-done, server.ErrClosed)
		require.NoError(t, all.Close(), "once more")
	})
	return all
}

// Two tenants of one address see nothing of each other; the device refuses a client that
// knows where the other's records are, and by which key they can be READ.
func TestTenants(t *testing.T) {
	all, ctx := tenants(t), within(t)
	at := all.Addr().String()
	red := dial(t, at, cache.Config{Tenant: "red", Key: redKey})
	blue := dial(t, at, cache.Config{Tenant: "blue", Key: blueKey})
	require.NoError(t, red.Set(ctx, key(1), cache.Item{Value: []byte("red's")}, 0))
	_, err := blue.Get(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrNotFound)
	require.NoError(t, blue.Set(ctx, key(1), cache.Item{Value: []byte("blue's")}, 0))
	require.NoError(t, blue.FlushAll(ctx))
	whole(t, red, 1)
	before := red.Stats()
	it, err := red.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "red's", string(it.Value))
	require.Equal(t, before.Hits+1, red.Stats().Hits)
	require.Equal(t, []string{"blue", "red"}, all.Names())
	require.Equal(t, 1, all.Server("red").Stats().Items)
	require.Zero(t, all.Server("blue").Stats().Items)

	e := set(t, all.Server("red"), key(2), []byte("secret"))
	mine := connectAs(t, at, 8, "red", redKey)
	_, err = mine.record(&e, key(2))
	require.NoError(t, err, "the place is right, and so is the key of the memory")
	theirs := connectAs(t, at, 8, "blue", blueKey)
	require.NotEqual(t, mine.link.Regions()[0].RKey, theirs.link.Regions()[0].RKey)
	err = theirs.read.Read(ctx, mine.link.Regions()[0].At(uint64(e.Place.Offset())), theirs.mr.SGE(0, e.Place.Length()))
	require.ErrorIs(t, err, verbs.WCRemoteAccess)
	require.NotContains(t, string(theirs.mr.Bytes()), "secret")
	_, err = red.Get(ctx, key(1))
	require.NoError(t, err, "that harmed its own queue pair alone")
}

// A client with no key, another key, or the name of no tenant is refused, by either
// transport, with the same error.
func TestTenantsKeepUnauthenticatedClientsOut(t *testing.T) {
	all := tenants(t)
	for name, cfg := range map[string]cache.Config{
		"no key":            {Tenant: "red"},
		"nobody's name":     {Tenant: "green", Key: redKey},
		"another's key":     {Tenant: "red", Key: blueKey},
		"no name":           {Key: redKey},
		"no name, no key":   {},
		"RDMA must be":      {Tenant: "red", Key: blueKey, RequireRDMA: true},
		"nobody, and alone": {Tenant: "green", Key: redKey, RequireRDMA: true},
	} {
		begin := time.Now()
		_, err := cache.Dial(within(t), all.Addr().String(), near(t, cfg))
		require.ErrorIs(t, err, cache.ErrDenied, name)
		require.Less(t, time.Since(begin), 5*time.Second, name)
	}
	s := listen(t, server.Config{Memory: 2 << 20}) // for clients without a key
	_, err := cache.Dial(within(t), s.Addr().String(), near(t, cache.Config{Tenant: "red", Key: redKey}))
	require.ErrorIs(t, err, cache.ErrDenied, "a client with a key talks to no unauthenticated server")
	keyed := listen(t, server.Config{Memory: 2 << 20, Key: redKey, MaxClients: 1})
	c := dial(t, keyed.Addr().String(), cache.Config{Key: redKey})
	_, err = cache.Dial(within(t), keyed.Addr().String(), near(t, cache.Config{Key: redKey}))
	require.ErrorIs(t, err, cache.ErrDenied)
	require.ErrorIs(t, err, greet.ErrFull)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		again, err := cache.Dial(within(t), keyed.Addr().String(), near(t, cache.Config{Key: redKey}))
		if err == nil {
			require.NoError(t, again.Close())
		}
		return err == nil
	}, stuck, 10*time.Millisecond, "there is room again")
	_, err = server.Listen(within(t), "127.0.0.1:0", server.Config{Key: []byte("short")})
	require.Error(t, err)
}

// When tenants cannot begin, for one of them, the others' records are not lost.
func TestTenantsThatCannotBegin(t *testing.T) {
	lab.NoLeftovers(t)
	at := netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String()
	cfg := server.Config{Memory: 2 << 20, Snapshot: filepath.Join(t.TempDir(), "red")}
	red, blue := server.Tenant{Name: "red", Key: redKey, Config: cfg}, server.Tenant{Name: "blue", Key: blueKey, Config: server.Config{Lease: 1}}
	all, err := server.ListenTenants(within(t), at, []server.Tenant{red}, nil)
	require.NoError(t, err)
	set(t, all.Server("red"), key(1), []byte("value"))
	n, err := all.Server("red").Save()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, all.Close())
	_, err = server.ListenTenants(within(t), at, []server.Tenant{red, blue}, nil)
	require.ErrorContains(t, err, "lease")
	all, err = server.ListenTenants(within(t), at, []server.Tenant{red}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, all.Server("red").Stats().Items)
	require.NoError(t, all.Close())
}

// Revoking a tenant ends its sessions and its registrations, and lets none of its clients in;
// others do not notice.
func TestRevokedTenant(t *testing.T) {
	all, ctx := tenants(t), within(t)
	at := all.Addr().String()
	red := dial(t, at, cache.Config{Tenant: "red", Key: redKey, FailFast: true})
	blue := dial(t, at, cache.Config{Tenant: "blue", Key: blueKey})
	require.NoError(t, red.Set(ctx, key(1), cache.Item{Value: []byte("red's")}, 0))
	require.NoError(t, blue.Set(ctx, key(1), cache.Item{Value: []byte("blue's")}, 0))
	whole(t, red, 1)
	_, err := red.Get(ctx, key(1))
	require.NoError(t, err)
	e := set(t, all.Server("red"), key(2), []byte("secret"))
	r := connectAs(t, at, 8, "red", redKey)
	_, err = r.record(&e, key(2))
	require.NoError(t, err)
	old := all.Server("red")

	require.NoError(t, all.Revoke("red"))
	require.NoError(t, all.Revoke("red"), "once more")
	require.Nil(t, all.Server("red"))
	_, err = r.record(&e, key(2))
	require.Error(t, err)
	require.Error(t, r.link.QP().Err())
	_, err = red.Get(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrUnavailable)
	require.Eventually(t, func() bool {
		_, err := red.Get(ctx, key(1))
		return errors.Is(err, cache.ErrDenied)
	}, stuck, time.Millisecond, "and says why")
	_, err = cache.Dial(ctx, at, near(t, cache.Config{Tenant: "red", Key: redKey}))
	require.ErrorIs(t, err, cache.ErrDenied)
	require.Zero(t, old.Stats())

	// The memory of another one's that has come since is none that an old pointer fits.
	it, err := blue.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, "blue's", string(it.Value))
	require.Equal(t, uint64(1), blue.Stats().Sessions)

	// A new key for the old name, and another one later: connections stay.
	require.NoError(t, all.Admit(ctx, &server.Tenant{Name: "red", Key: blueKey, Config: server.Config{Memory: 2 << 20}}))
	back := dial(t, at, cache.Config{Tenant: "red", Key: blueKey})
	_, err = back.Get(ctx, key(1))
	require.ErrorIs(t, err, cache.ErrNotFound, "its records are gone")
	require.NoError(t, all.SetKey("red", redKey))
	_, err = cache.Dial(ctx, at, near(t, cache.Config{Tenant: "red", Key: blueKey}))
	require.ErrorIs(t, err, cache.ErrDenied)
	require.NoError(t, back.Set(ctx, key(1), cache.Item{}, 0))
	require.Equal(t, uint64(1), back.Stats().Sessions)
	require.Error(t, all.Admit(ctx, &server.Tenant{Name: "red", Key: blueKey}), "there is one")
	require.Error(t, all.Admit(ctx, &server.Tenant{Name: "", Key: blueKey}))
	require.Error(t, all.Admit(ctx, &server.Tenant{Name: "green", Key: blueKey[:15]}))
	require.Error(t, all.SetKey("green", blueKey))
}

// Connections that send nothing, or anything, before they are admitted keep no client out,
// get no queue pair, and are soon closed.
func TestUnauthenticatedClientsAtTheListener(t *testing.T) {
	all, ctx := tenants(t), within(t)
	at := all.Addr().String()
	red := dial(t, at, cache.Config{Tenant: "red", Key: redKey})
	d := near(t, cache.Config{}).Dialer
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	hello := greet.NewClient(greet.Hello{Transport: greet.RDMA, Tenant: "red"}, nil).Hello()
	for i, say := range [][]byte{nil, hello[:50], hello, append(hello, make([]byte, 32)...), []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 4096)} {
		for range 20 {
			c, err := d.DialContext(ctx, "tcp", at)
			require.NoError(t, err)
			conns = append(conns, c)
			_, err = c.Write(say)
			require.NoError(t, err, i)
		}
	}
	var gone sync.WaitGroup
	begin := time.Now()
	blue := dial(t, at, cache.Config{Tenant: "blue", Key: blueKey})
	require.Less(t, time.Since(begin), 4*time.Second, "not after they were given up")
	require.NoError(t, blue.Set(ctx, key(1), cache.Item{}, 0))
	require.Equal(t, 1, all.Server("red").Stats().Clients)
	require.Equal(t, 1, all.Server("blue").Stats().Clients)
	var closed atomic.Int32
	for _, c := range conns {
		gone.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := io.Copy(io.Discard, c)
			var late net.Error
			if !errors.As(err, &late) || !late.Timeout() {
				closed.Add(1)
			}
			if n > greet.MaxMessage {
				t.Error("was told ", n, " bytes")
			}
		})
	}
	gone.Wait()
	require.GreaterOrEqual(t, int(closed.Load()), 2*20, "a wrong proof, and what is no greeting, end at once")
	require.Equal(t, uint64(1), red.Stats().Sessions)
}

// Many clients that connect at once are all admitted.
func TestManyAtTheDoor(t *testing.T) {
	all, d := tenants(t), near(t, cache.Config{}).Dialer
	var greetings sync.WaitGroup
	for range 150 {
		greetings.Go(func() {
			c, err := d.DialContext(within(t), "tcp", all.Addr().String())
			if err == nil {
				_, err = link.Greet(within(t), c, greet.Hello{Transport: greet.TCP, Tenant: "red"}, redKey, nil)
				err = errors.Join(err, c.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	greetings.Wait()
	require.Eventually(t, func() bool { return all.Server("red").Stats().Streams == 0 }, stuck, time.Millisecond)
}
