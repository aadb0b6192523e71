//go:build linux

package cache_test

import (
	"context"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const hostsPort = "7481"

// serveOn starts a server on another host.
func serveOn(t *testing.T, host int) (address string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	address = net.JoinHostPort(lab.Addrs()[host].String(), hostsPort)
	go func() { _, _ = lab.Host(host).Exec(context.Background(), "env", role+"="+address, self) }()
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, stuck, 100*time.Millisecond)
	return address
}

// A host loses its power. Hits of the other one's server go on through the same initiator, by READ, with one
// context for both; operations of the dead one's keys end, and when there is a server again it is used.
func TestOnHostsServerBehindAnInitiatorIsKilled(t *testing.T) {
	lab.RequireHosts(t, 3)
	addresses := []string{serveOn(t, 1), serveOn(t, 2)}
	end := lab.Require(t, 1)[0]
	dev, err := verbs.Open(end.Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	defer dev.Close()
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	defer pd.Close()
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 1})
	require.NoError(t, err)
	defer i.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*stuck)
	defer cancel()
	c, err := cache.DialCluster(ctx, addresses, cache.ClusterConfig{Config: cache.Config{DC: i}})
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { st := c.Stats(); return st[0].Connected && st[1].Connected }, stuck, time.Millisecond)
	var keys [][]byte
	for k := range 32 {
		keys = append(keys, key(k))
		require.NoError(t, c.Set(ctx, key(k), cache.Item{Value: key(k)}, 0))
	}
	share := shares(t, c, keys, addresses...)
	round := func(keys [][]byte) (worst time.Duration) {
		for _, k := range keys {
			begun := time.Now()
			it, err := c.Get(ctx, k)
			require.NoError(t, err)
			require.Equal(t, string(k), string(it.Value))
			worst = max(worst, time.Since(begun))
		}
		return worst
	}
	round(keys)
	for _, st := range c.Stats() {
		require.Equal(t, cache.DC, st.Transport)
	}
	before := c.Stats()
	require.NoError(t, lab.Host(1).Kill(ctx))
	killed := time.Now()
	ended := make(chan error, 1)
	go func() { // those of the dead one's keys
		for {
			if _, err := c.Get(ctx, share[0][0]); err != nil {
				ended <- err
				return
			}
		}
	}()
	var took []time.Duration
	for len(ended) == 0 {
		took = append(took, round(share[1]))
	}
	require.ErrorIs(t, <-ended, cache.ErrUnavailable)
	t.Logf("the dead one's keys fail after %v", time.Since(killed).Round(time.Millisecond))
	slices.Sort(took)
	t.Logf("the slowest hit of the other one: %v, of %d rounds; half of these had none slower than %v", took[len(took)-1], len(took), took[len(took)/2])
	st := c.Stats()[1]
	t.Logf("%d hits, %d blocked", st.Hits-before[1].Hits, st.Blocked-before[1].Blocked)
	require.Zero(t, st.Misses)
	require.Equal(t, uint64(1), st.Sessions)
	require.Greater(t, st.Hits-before[1].Hits, uint64(len(took)*len(share[1])*9/10), "READs, but for those that waited too long for the context")

	require.NoError(t, lab.Host(1).Start(ctx))
	serveOn(t, 1)
	require.Eventually(t, func() bool { return c.Set(ctx, share[0][0], cache.Item{Value: []byte("again")}, 0) == nil }, stuck, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		hits := c.Stats()[0].Hits
		it, err := c.Get(ctx, share[0][0])
		require.NoError(t, err)
		require.Equal(t, "again", string(it.Value))
		return c.Stats()[0].Hits > hits
	}, stuck, 10*time.Millisecond)
	require.Equal(t, cache.DC, c.Stats()[0].Transport, c.Stats()[0].FallbackReason)
}
