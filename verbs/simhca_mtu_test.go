//go:build simhca && linux && cgo

package verbs_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What a queue pair tells its peer, and takes at most, is what the netdev of its GID
// carries, although the port has 4096.
func TestSimulatedNetdevMTU(t *testing.T) {
	simulated(t, "mlx5")
	for ip, want := range map[int]verbs.MTU{1500: verbs.MTU1024, 2300: verbs.MTU2048, 9000: verbs.MTU4096, 351: 0} {
		lab.InNamespace(t, ip, func() {
			dev, err := verbs.Open(rig.Ports(t)[0].Name, verbs.DeviceConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			gid, err := dev.FindGID(verbs.GIDQuery{})
			require.NoError(t, err)
			if gid.IfIndex == 0 {
				t.Skip("the device has no netdev")
			}
			mtu, err := dev.LocalMTU(gid)
			if want == 0 {
				require.ErrorIs(t, err, verbs.ErrAttributes)
				require.ErrorContains(t, err, "351 bytes")
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, mtu)
			pd, err := dev.AllocPD()
			require.NoError(t, err)
			defer func() { require.NoError(t, pd.Close()) }()
			cq, err := dev.CreateCQ(verbs.CQConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, cq.Close()) }()
			qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq})
			require.NoError(t, err)
			defer func() { require.NoError(t, qp.Close()) }()
			e, err := qp.Endpoint()
			require.NoError(t, err)
			require.Equal(t, want, e.MTU)
			if want < verbs.MTU4096 {
				require.ErrorIs(t, qp.Connect(e, verbs.ConnectConfig{MTU: want + 1}), verbs.ErrAttributes)
			}
			e.MTU = verbs.MTU4096 // a peer that has more
			require.NoError(t, qp.Connect(e, verbs.ConnectConfig{}))
		})
	}
}

// A link takes the smallest MTU of both sides, of netdev, route and configuration.
func TestSimulatedLinkMTU(t *testing.T) {
	simulated(t, "mlx5:ipv4")
	for _, c := range []struct {
		name       string
		netdev     int
		route      string
		near, far  verbs.MTU
		negotiated verbs.MTU
	}{
		{"all of it", 9000, "", 0, 0, verbs.MTU4096},
		{"the client's netdev", 1500, "", 0, 0, verbs.MTU1024},
		{"the client's route", 9000, "2300", 0, 0, verbs.MTU2048},
		{"the client's wish", 9000, "", verbs.MTU512, 0, verbs.MTU512},
		{"the server's wish", 9000, "", 0, verbs.MTU256, verbs.MTU256},
		{"a wish too large", 1500, "", verbs.MTU4096, verbs.MTU2048, verbs.MTU1024},
	} {
		lab.InNamespace(t, c.netdev, func() {
			if c.route != "" {
				lab.IP(t, "route", "replace", "local", "127.0.0.1", "dev", "lo", "table", "local", "proto", "kernel", "scope", "host", "src", "127.0.0.1", "mtu", c.route)
			}
			dev, err := verbs.Open(rig.Ports(t)[0].Name, verbs.DeviceConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			pd, err := dev.AllocPD()
			require.NoError(t, err)
			defer func() { require.NoError(t, pd.Close()) }()
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			near, err := net.Dial("tcp4", l.Addr().String())
			require.NoError(t, err)
			defer near.Close()
			far, err := l.Accept()
			require.NoError(t, err)
			defer far.Close()
			made := make(chan error, 1)
			var server *verbs.Link
			go func() { // in the first namespace, where lo has 65536
				var err error
				server, err = verbs.NewLink(t.Context(), plain{far}, verbs.LinkConfig{PD: pd, Connect: verbs.ConnectConfig{MTU: c.far}})
				made <- err
			}()
			client, err := verbs.NewLink(t.Context(), near, verbs.LinkConfig{PD: pd, Connect: verbs.ConnectConfig{MTU: c.near}})
			require.NoError(t, err, c.name)
			require.NoError(t, <-made, c.name)
			for _, l := range []*verbs.Link{client, server} {
				a, err := l.QP().Query()
				require.NoError(t, err)
				require.Equal(t, c.negotiated, a.PathMTU, c.name)
				require.NoError(t, l.Close())
			}
		})
	}
}

// plain hides the socket of a connection.
type plain struct{ net.Conn }

// relay connects two TCP connections by a path that loses what is longer than the
// handshake's messages, and all behind it.
func relay(near, far net.Conn) {
	carry := func(to, from net.Conn) {
		for b, n := make([]byte, 64), 0; n < 1000; {
			k, err := from.Read(b)
			if err != nil {
				return
			}
			n += k
			if _, err := to.Write(b[:k]); err != nil {
				return
			}
		}
	}
	go carry(near, far)
	go carry(far, near)
}

// A link over a path that loses packets as long as the netdevs' MTU ends with an error that
// says so.
func TestSimulatedPathMTU(t *testing.T) {
	simulated(t, "mlx5:ipv4")
	dev, err := verbs.Open(rig.Ports(t)[0].Name, verbs.DeviceConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var conns [4]net.Conn // both ends of two connections
	for i := 0; i < 4; i += 2 {
		conns[i], err = net.Dial("tcp4", l.Addr().String())
		require.NoError(t, err)
		defer conns[i].Close()
		conns[i+1], err = l.Accept()
		require.NoError(t, err)
		defer conns[i+1].Close()
	}
	relay(conns[1], conns[2])
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	made := make(chan error, 1)
	for _, c := range []net.Conn{conns[0], conns[3]} {
		go func() {
			_, err := verbs.NewLink(ctx, c, verbs.LinkConfig{PD: pd})
			made <- err
		}()
	}
	for range 2 {
		require.ErrorIs(t, <-made, verbs.ErrPathMTU)
	}
}
