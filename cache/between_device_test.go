//go:build linux

package cache_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// passOn passes a greeting on, from a client to a server and back, and has no key.
func passOn(client, server net.Conn) error {
	pass := func(from, to net.Conn) error {
		for {
			b, err := link.Message(from)
			if err == nil {
				_, err = to.Write(b)
			}
			if err != nil || !greet.IsLater(b) {
				return err
			}
		}
	}
	err := pass(client, server)
	if err == nil {
		err = pass(server, client)
	}
	if err == nil {
		_, err = io.CopyN(server, client, greet.ProofSize)
	}
	if err == nil {
		err = pass(server, client)
	}
	return err
}

// An attacker between a client and a server that passes on their messages until both have authenticated
// each other cannot go on alone: neither as the client, to READ its tenant's records, nor as the server.
func TestNobodyTakesOverAGreeting(t *testing.T) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	require.NoError(t, err)
	defer l.Close()
	all, ctx := tenants(t, l.Addr().String()), within(t) // an attacker on the path has the server's own address
	e := set(t, all.Server("red"), key(1), []byte("secret"))
	victim := make(chan error, 1)
	comes := func(rdma bool) net.Conn {
		go func() {
			c, err := cache.Dial(ctx, l.Addr().String(), near(t, cache.Config{Tenant: "red", Key: redKey, RequireRDMA: rdma}))
			if err == nil {
				err = c.Close()
			}
			victim <- err
		}()
		conn, err := l.Accept()
		require.NoError(t, err)
		return conn
	}
	var reads *verbs.Link
	hasty := verbs.ConnectConfig{Retries: 1}
	cfg := link.Config(verbs.LinkConfig{Dialer: near(t, cache.Config{}).Dialer, Connect: hasty}, 8)
	cfg.Setup = func(l *verbs.Link) (offer verbs.Offer, err error) {
		reads, offer, err = link.Prepare(l, verbs.LinkConfig{PD: l.PD(), QP: verbs.QPConfig{Access: verbs.RemoteRead}}, wire.Hello{Epoch: 1, Frames: 8}, nil, greet.Seal{})
		return offer, err
	}

	// As the client.
	var between net.Conn
	cfg.Greet = func(_ context.Context, server net.Conn) error {
		between = comes(true)
		return passOn(between, server)
	}
	mine, err := verbs.DialLink(ctx, all.Addr().String(), cfg)
	require.NoError(t, err)
	_, err = link.Join(mine, reads, hasty, greet.Seal{})
	require.ErrorIs(t, err, greet.ErrSeal, "he can tell that the server seals what it says")
	h, err := wire.ReadHello(mine.Data())
	require.NoError(t, err)
	var end verbs.Endpoint
	require.NoError(t, end.UnmarshalBinary(h.Endpoint))
	require.NoError(t, reads.QP().Connect(end, hasty))
	r, err := reads.Requester()
	require.NoError(t, err)
	mr, err := mine.AllocMR(4096, verbs.MRConfig{})
	require.NoError(t, err)
	place := e.Place
	err = r.Read(ctx, mine.Regions()[place.Region()].At(uint64(place.Offset())), mr.SGE(0, place.Length()))
	assert.Error(t, err, "nobody answers him")
	assert.NotContains(t, string(mr.Bytes()), "secret")
	require.NoError(t, between.Close())
	require.Error(t, <-victim)
	require.NoError(t, mine.Close())
	require.Zero(t, all.Server("red").Stats().Clients)

	// As the server.
	conn := comes(false) // nor by TCP
	defer conn.Close()
	server, err := net.Dial("tcp", all.Addr().String())
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, passOn(conn, server))
	theirs, err := verbs.NewLink(ctx, conn, cfg)
	require.NoError(t, err)
	defer theirs.Close()
	err = <-victim
	require.ErrorIs(t, err, cache.ErrDenied)
	require.ErrorIs(t, err, greet.ErrSeal)
}
