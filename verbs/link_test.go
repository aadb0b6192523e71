//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// tcpPair are the ends of a TCP connection between the addresses of two ports.
func tcpPair(t *testing.T, p [2]rig.Port) [2]net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(p[1].Addr(), 0).String())
	require.NoError(t, err)
	defer l.Close()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p[0].Addr(), 0)), Timeout: rig.Timeout}
	near, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return [2]net.Conn{near, far}
}

// links connects both ends at once.
func links(t *testing.T, ctx context.Context, conns [2]net.Conn, cfgs [2]verbs.LinkConfig) (out [2]*verbs.Link, errs [2]error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		out[1], errs[1] = verbs.NewLink(ctx, conns[1], cfgs[1])
	}()
	out[0], errs[0] = verbs.NewLink(ctx, conns[0], cfgs[0])
	<-done
	for _, l := range out {
		if l != nil {
			t.Cleanup(func() { require.NoError(t, l.Close()) })
		}
	}
	return out, errs
}

// memory is a Setup that offers 4 KiB.
func memory(t *testing.T, mr **verbs.MR, data string) func(*verbs.Link) (verbs.Offer, error) {
	return func(l *verbs.Link) (verbs.Offer, error) {
		m, err := l.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
		if err != nil {
			return verbs.Offer{}, err
		}
		*mr = m
		return verbs.Offer{Regions: []verbs.Region{m.Region()}, Data: []byte(data)}, nil
	}
}

// Nothing is configured but the memory: device, GID, domain and queues are found
// and made, and the first WRITE finds the peer ready.
func TestLink(t *testing.T) {
	conns := tcpPair(t, rig.NeedAddresses(t, rig.Ports(t)))
	var mrs [2]*verbs.MR
	slow := memory(t, &mrs[1], "far")
	ls, errs := links(t, t.Context(), conns, [2]verbs.LinkConfig{
		{Setup: memory(t, &mrs[0], "near")},
		{Setup: func(l *verbs.Link) (verbs.Offer, error) { time.Sleep(300 * time.Millisecond); return slow(l) }},
	})
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, "far", string(ls[0].Data()))
	require.Equal(t, "near", string(ls[1].Data()))

	r, err := ls[0].Requester()
	require.NoError(t, err)
	same, err := ls[0].Requester()
	require.NoError(t, err)
	require.Same(t, r, same)
	copy(mrs[0].Bytes(), "by a link")
	require.NoError(t, r.Write(t.Context(), ls[0].Regions()[0].At(100), mrs[0].SGE(0, 9)))
	require.Equal(t, "by a link", string(mrs[1].Bytes()[100:109]))
	_, err = conns[0].Write([]byte("still there"))
	require.NoError(t, err)
	b := make([]byte, 11)
	_, err = conns[1].Read(b)
	require.NoError(t, err)
	require.Equal(t, "still there", string(b))
	other, err := ls[0].PD().AllocMR(64, verbs.MRConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, ls[0].Close(), verbs.ErrInUse, "that memory is the program's")
	require.ErrorIs(t, ls[0].QP().Err(), verbs.ErrClosed)
	require.ErrorIs(t, r.Read(t.Context(), ls[0].Regions()[0].At(0), other.SGE(0, 8)), verbs.ErrClosed)
	require.NoError(t, other.Close())
	require.NoError(t, ls[0].Close())
	require.NoError(t, ls[0].Close())
}

func TestLinkOfDatagrams(t *testing.T) {
	p := rig.NeedAddresses(t, rig.Ports(t))
	conns := tcpPair(t, p)
	var mrs [2]*verbs.MR
	recv := func(l *verbs.Link) (verbs.Offer, error) {
		var err error
		if mrs[1], err = l.AllocMR(4096, verbs.MRConfig{}); err != nil {
			return verbs.Offer{}, err
		}
		b, err := l.QP().NewRecvBatch(1)
		if err != nil {
			return verbs.Offer{}, err
		}
		b.Recv(1, mrs[1].SGE(0, 256))
		_, err = b.Post()
		return verbs.Offer{}, err
	}
	ud := verbs.QPConfig{Type: verbs.UD}
	ls, errs := links(t, t.Context(), conns, [2]verbs.LinkConfig{{QP: ud, Setup: memory(t, &mrs[0], "")}, {QP: ud, Setup: recv}})
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	r, err := ls[0].Requester()
	require.NoError(t, err)
	copy(mrs[0].Bytes(), "a datagram")
	require.NoError(t, r.Do(t.Context(), verbs.WR{Op: verbs.WRSend, To: new(ls[0].Destination()), Local: []verbs.SGE{mrs[0].SGE(0, 10)}}))
	var wcs [1]verbs.WC
	_, err = ls[1].CQ().Wait(t.Context(), wcs[:])
	require.NoError(t, err)
	require.NoError(t, wcs[0].Err())
	require.Equal(t, "a datagram", string(mrs[1].Bytes()[verbs.GRHSize:verbs.GRHSize+10]))
}

// What fails on one side ends both, at each step, and leaves nothing.
func TestLinkFails(t *testing.T) {
	p := rig.NeedAddresses(t, rig.Ports(t))
	no := errors.New("no")
	for name, cfgs := range map[string][2]verbs.LinkConfig{
		"setup":       {{}, {Setup: func(*verbs.Link) (verbs.Offer, error) { return verbs.Offer{}, no }}},
		"offer":       {{}, {Setup: func(*verbs.Link) (verbs.Offer, error) { return verbs.Offer{Data: make([]byte, 5000)}, nil }}},
		"types":       {{}, {QP: verbs.QPConfig{Type: verbs.UD}}},
		"queue pair":  {{}, {QP: verbs.QPConfig{MaxSendWR: -1}}},
		"transitions": {{}, {Connect: verbs.ConnectConfig{MTU: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, errs := links(t, t.Context(), tcpPair(t, p), cfgs)
			require.Error(t, errs[0])
			require.Error(t, errs[1])
			t.Log(errs[0])
			t.Log(errs[1])
			require.Less(t, time.Since(begin), 8*time.Second, "nobody waits for the limit")
		})
	}
	t.Run("silence", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := verbs.NewLink(ctx, tcpPair(t, p)[0], verbs.LinkConfig{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("silence at the barrier", func(t *testing.T) {
		conns := tcpPair(t, p)
		far := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
		go verbs.Exchange(t.Context(), conns[1], far.Endpoint(t))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := verbs.NewLink(ctx, conns[0], verbs.LinkConfig{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("hang up", func(t *testing.T) {
		conns := tcpPair(t, p)
		conns[1].Close()
		_, err := verbs.NewLink(t.Context(), conns[0], verbs.LinkConfig{})
		require.Error(t, err)
	})
}

// closer tells when it is closed.
type closer func() error

func (c closer) Close() error { return c() }

// What Setup makes is freed with the link, the last first, also where there is no link
// in the end.
func TestLinkOwnsWhatSetupMakes(t *testing.T) {
	p := rig.NeedAddresses(t, rig.Ports(t))
	ctx := rig.Context(t)
	var closed []int
	owning := func(err error) verbs.LinkConfig {
		return verbs.LinkConfig{Setup: func(l *verbs.Link) (verbs.Offer, error) {
			require.NoError(t, l.AddCloser(nil))
			for i := range 2 {
				require.NoError(t, l.AddCloser(closer(func() error {
					closed = append(closed, i)
					return nil
				})))
			}
			return verbs.Offer{}, err
		}}
	}
	ls, errs := links(t, ctx, tcpPair(t, p), [2]verbs.LinkConfig{owning(nil), {}})
	require.NoError(t, errors.Join(errs[:]...))
	require.Empty(t, closed)
	require.NoError(t, ls[0].Close())
	require.Equal(t, []int{1, 0}, closed)
	late := 0
	require.ErrorIs(t, ls[0].AddCloser(closer(func() error { late++; return nil })), verbs.ErrClosed)
	require.Equal(t, 1, late)
	require.ErrorIs(t, ls[0].AddCloser(nil), verbs.ErrClosed)

	closed = nil
	_, errs = links(t, ctx, tcpPair(t, p), [2]verbs.LinkConfig{owning(io.ErrNoProgress), {}})
	require.ErrorIs(t, errs[0], io.ErrNoProgress)
	require.Equal(t, []int{1, 0}, closed)
}
