//go:build linux

package cache_test

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
)

// Many clients that come at once connect a few at a time, and so each of them does, by RDMA. When all
// connect together on a slow machine, none is done before it is given up.
func TestCrowd(t *testing.T) {
	if testing.Short() {
		t.Skip("connects many clients")
	}
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	first := dial(t, p.address, cache.Config{}) // files that it needs are there now
	whole(t, first, 0)
	cfg := near(t, cache.Config{})
	clients := make([]*cache.Client, 128)
	var connecting sync.WaitGroup
	for i := range clients {
		connecting.Go(func() {
			c, err := cache.Dial(t.Context(), p.address, cfg)
			if assert.NoError(t, err) {
				clients[i] = c
			}
		})
	}
	connecting.Wait()
	for i, c := range clients {
		if c == nil {
			continue
		}
		st := c.Stats()
		assert.Equal(t, cache.RDMA, st.Transport, "client %d: %+v", i, st)
		assert.NoError(t, c.Close())
	}
}

// A client whose turn has not come is told to wait, and connects when others are done.
func TestClientsConnectInTurn(t *testing.T) {
	s := serve(t, server.Config{})
	most := max(4, 2*runtime.GOMAXPROCS(0)) // at a time
	greeted := func(alive func()) (net.Conn, error) {
		conn, err := near(t, cache.Config{}).Dialer.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			return nil, err
		}
		_, err = link.Greet(within(t), conn, greet.RDMA, "", nil, alive)
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
