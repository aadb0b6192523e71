//go:build linux

package cache_test

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// Many clients that come at once connect a few at a time, and so each of them does, by RDMA. When all connect
// together on a slow machine, none is done before it is given up. When a thousand have come the server has all
// of them: each READs, and changes a record of its own, and none has lost its connection meanwhile.
func TestCrowd(t *testing.T) {
	if testing.Short() {
		t.Skip("connects many clients")
	}
	const many, atOnce = 1000, 128
	t.Setenv(lease, "5m") // what all of them say of a short one takes more than an emulated machine has
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	first := dial(t, p.address, cache.Config{}) // files that it needs are there now
	whole(t, first, 0)
	value := []byte("what all of them READ")
	require.NoError(t, first.Set(within(t), key(0), cache.Item{Value: value}, 0))
	few := p.footprint()
	cfg := near(t, cache.Config{RequireRDMA: true})
	clients := make([]*cache.Client, many)
	each := func(what string, together int, do func(i int) error) {
		t.Helper()
		begun, places := time.Now(), make(chan struct{}, together)
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				assert.NoError(t, do(i), i)
			})
		}
		all.Wait()
		t.Log(what, time.Since(begun))
		require.False(t, t.Failed())
	}
	defer each("close", many, func(i int) (err error) {
		if clients[i] != nil {
			err = clients[i].Close()
		}
		return err
	})
	each("connect", atOnce, func(i int) (err error) {
		clients[i], err = cache.Dial(t.Context(), p.address, cfg)
		return err
	})
	each("read and write", 64, func(i int) error {
		it, err := clients[i].Get(t.Context(), key(0))
		if err == nil {
			assert.Equal(t, value, it.Value)
			err = clients[i].Set(t.Context(), key(1+i), cache.Item{Value: value}, 0)
		}
		return err
	})
	for i, c := range clients {
		st := c.Stats()
		require.Equal(t, cache.RDMA, st.Transport, i)
		require.EqualValues(t, 1, st.Sessions, "client %d: %+v", i, st)
		whole(t, c, 1+many)
	}
	n := p.footprint()
	t.Logf("%d bytes of the server for each client; %+v with one, %+v with all", (n.bytes-few.bytes)/many, few, n)
	require.LessOrEqual(t, n.files-few.files, many)
}

// A client is told to wait until its turn comes, and connects when others are done.
func TestClientsConnectInTurn(t *testing.T) {
	s := serve(t, server.Config{})
	most := max(4, 2*runtime.GOMAXPROCS(0)) // at a time
	greeted := func(alive func()) (net.Conn, error) {
		conn, err := near(t, cache.Config{}).Dialer.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			return nil, err
		}
		_, err = link.Greet(within(t), conn, greet.Hello{Transport: greet.RDMA}, nil, alive)
		return conn, err
	}
	told := make(chan struct{}, 1)
	waited := false
	for tries := 0; !waited; tries++ { // a turn ends after a while, which may be over on a busy machine
		require.Less(t, tries, 10, "nobody waits")
		var others []net.Conn
		for range most {
			conn, err := greeted(nil)
			require.NoError(t, err)
			others = append(others, conn)
		}
		done := make(chan error, 1)
		go func() {
			conn, err := greeted(func() {
				select {
				case told <- struct{}{}:
				default:
				}
			})
			if conn != nil {
				conn.Close()
			}
			done <- err
		}()
		select {
		case <-told:
			waited = true
		case err := <-done:
			require.NoError(t, err)
			done <- nil
		}
		for _, c := range others {
			require.NoError(t, c.Close())
		}
		require.NoError(t, <-done)
	}
	whole(t, dial(t, s.Addr().String(), cache.Config{RequireRDMA: true}), 0)
}
