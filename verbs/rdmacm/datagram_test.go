//go:build linux

package rdmacm_test

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

func TestDatagrams(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{Type: verbs.UD})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	var a, b rig.Side
	accepted := make(chan struct{}, 2)
	go func() {
		for range 2 {
			r, err := l.Accept(ctx)
			if err == nil {
				err = r.AcceptUD(rdmacm.ConnConfig{Setup: b.UDSetup(t, 4), PrivateData: []byte("here")})
			}
			if err != nil {
				t.Error(err)
			}
			accepted <- struct{}{}
		}
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Reject([]byte("enough"))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	cfg := rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: a.UDSetup(t, 0), PrivateData: []byte("where")},
		Local: netip.AddrPortFrom(p[0].Addr(), 0)}
	for range 2 { // the second time with queue pairs in use
		peer, err := m.DialUD(ctx, l.Addr().String(), cfg)
		require.NoError(t, err)
		require.Equal(t, "here", string(peer.PrivateData()[:4]))
		require.EqualValues(t, rdmacm.UDPQKey, peer.Destination().QKey)
		<-accepted // b is made
		copy(a.MR.Bytes(), "datagram")
		batch := a.Batch(t, 1)
		batch.SendTo(1, verbs.Signaled, peer.Destination(), a.MR.SGE(0, 8))
		a.Do(t, batch, 1)
		wc := b.Wait(t, 1)
		require.NoError(t, wc[0].Err())
		at := int(wc[0].ID()) * 256
		require.Equal(t, "datagram", string(b.MR.Bytes()[at+40:at+48]))
		require.NoError(t, peer.Close())
	}
	attr, err := a.QP.Query()
	require.NoError(t, err)
	e, err := a.QP.Endpoint()
	require.NoError(t, err)
	require.EqualValues(t, []uint32{rdmacm.UDPQKey, rdmacm.UDPQKey}, []uint32{attr.QKey, e.QKey})
	_, err = m.DialUD(ctx, l.Addr().String(), cfg)
	var rejected *rdmacm.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, "enough", string(rejected.PrivateData[:6]))
	_, err = m.DialUD(ctx, p[1].Addr().String()+":9", cfg)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestLookUp: a datagram service and its client, without queue pairs.
func TestLookUp(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{Type: verbs.UD})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	const qpn = 0x123456
	var accepted sync.WaitGroup
	defer accepted.Wait()
	accepted.Go(func() {
		r, err := l.Accept(ctx)
		if err == nil && string(r.PrivateData()[:3]) != "who" {
			err = errors.New("another question")
		}
		if err == nil {
			err = errors.Join(r.AcceptQPN(qpn, []byte("me")), r.AcceptQPN(qpn, make([]byte, rdmacm.MaxAcceptDataUD+1)))
		}
		if !errors.Is(err, verbs.ErrAttributes) {
			t.Error(err)
		}
	})
	cfg := rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{PrivateData: []byte("who")}, Local: netip.AddrPortFrom(p[0].Addr(), 0)}
	s, err := m.LookUp(ctx, l.Addr().String(), cfg)
	require.NoError(t, err)
	require.EqualValues(t, qpn, s.QPN)
	require.Equal(t, "me", string(s.PrivateData[:2]))
	_, err = m.LookUp(ctx, p[1].Addr().String()+":9", cfg)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	cfg.PrivateData = make([]byte, rdmacm.MaxRequestDataUD+1)
	_, err = m.LookUp(ctx, l.Addr().String(), cfg)
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

func TestMulticast(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	group := netip.MustParseAddr("239.77.1.1")
	var sides [2]rig.Side
	var peers [2]*rdmacm.Peer
	for i := range sides {
		var err error
		peers[i], err = m.Join(ctx, group, rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: sides[i].UDSetup(t, 4)},
			Local: netip.AddrPortFrom(p[i].Addr(), 0)})
		require.NoError(t, err)
		require.EqualValues(t, 0xffffff, peers[i].Destination().QPN)
	}
	copy(sides[0].MR.Bytes()[1000:], "to all")
	batch := sides[0].Batch(t, 1)
	batch.SendTo(100, verbs.Signaled, peers[0].Destination(), sides[0].MR.SGE(1000, 6))
	sides[0].Do(t, batch, 1)
	wc := sides[1].Wait(t, 1)
	require.NoError(t, wc[0].Err())
	require.Equal(t, "to all", string(sides[1].MR.Bytes()[40:46]))
	for _, peer := range peers {
		require.NoError(t, peer.Close())
		require.NoError(t, peer.Close())
	}
	_, err := m.Join(ctx, p[0].Addr(), rdmacm.DialConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes)
}
