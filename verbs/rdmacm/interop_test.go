//go:build linux

package rdmacm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// Against the example programs of librdmacm, each as client and as server.

// program runs one of them; the reply waits for its success.
func program(t *testing.T, name string, args ...string) (wait func() string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		rig.Missing(t, "no %s: install rdmacm-utils", name)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(rig.Context(t), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	wait = sync.OnceValue(func() string {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
		return out.String()
	})
	t.Cleanup(func() { wait() })
	return wait
}

func portOf(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// untilListening repeats a dial until the peer listens.
func untilListening[C any](t *testing.T, dial func() (C, error)) C {
	t.Helper()
	for end := time.Now().Add(rig.Timeout); ; time.Sleep(50 * time.Millisecond) {
		c, err := dial()
		if errors.Is(err, syscall.ECONNREFUSED) && time.Now().Before(end) {
			continue
		}
		require.NoError(t, err)
		return c
	}
}

const pings, pingSize = 5, 1000

// pingText is what rping's client sends in its n-th round.
func pingText(n int) []byte {
	b := fmt.Appendf(nil, "rdma-ping-%d: ", n)
	for c := byte(65 + n); len(b) < pingSize; c++ {
		if c > 122 {
			c = 65
		}
		b = append(b, c)
	}
	b[pingSize-1] = 0
	return b
}

// Memory of a Go side: messages first, data from 4096 on.
const pingData = 4096

func info(b []byte) (at verbs.Remote, size int) {
	return verbs.Remote{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:])}, int(binary.BigEndian.Uint32(b[12:]))
}

func TestRpingClient(t *testing.T) {
	for _, flags := range [][]string{nil, {"-q"}} {
		p := rig.CMPorts(t)
		m, ctx := rig.NewCM(t), rig.Context(t)
		l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		wait := program(t, "rping", append(flags, "-c", "-a", l.Addr().Addr().String(), "-p", portOf(l.Addr()),
			"-I", p[0].Addr().String(), "-C", fmt.Sprint(pings), "-S", fmt.Sprint(pingSize), "-V")...)
		r, err := l.Accept(ctx)
		require.NoError(t, err)
		var s rig.Side
		conn, err := r.Accept(ctx, rdmacm.ConnConfig{Setup: s.Setup(t, 1)})
		require.NoError(t, err)
		mem, batch := s.MR.Bytes(), s.Batch(t, 1)
		next := func() (verbs.Remote, int) {
			wc := s.Wait(t, 1)
			require.NoError(t, wc[0].Err())
			require.Equal(t, 16, wc[0].Len())
			at, size := info(mem)
			s.Recv(t, 1, 64)
			return at, size
		}
		for i := range pings {
			from, size := next()
			require.Equal(t, pingSize, size)
			batch.Read(1, verbs.Signaled, from, s.MR.SGE(pingData, size))
			s.Do(t, batch, 1)
			require.Equal(t, pingText(i), mem[pingData:pingData+size])
			// The go-ahead and its reply cross: only sends are waited for here.
			batch.Send(1, 0, s.MR.SGE(64, 16))
			_, err := batch.Post()
			require.NoError(t, err)
			to, size := next()
			batch.Write(1, verbs.Signaled, to, s.MR.SGE(pingData, size))
			s.Do(t, batch, 1)
			// The last one may be flushed: rping leaves as soon as it has it.
			batch.Send(1, 0, s.MR.SGE(64, 16))
			_, err = batch.Post()
			require.NoError(t, err)
		}
		<-conn.Done()
		require.ErrorIs(t, conn.Err(), rdmacm.ErrDisconnected)
		wait()
		require.NoError(t, conn.Close())
	}
}

func TestRpingServer(t *testing.T) {
	for i, flags := range [][]string{nil, {"-q"}} {
		p := rig.CMPorts(t)
		m, ctx := rig.NewCM(t), rig.Context(t)
		port := fmt.Sprint(7200 + i)
		wait := program(t, "rping", append(flags, "-s", "-a", p[1].Addr().String(), "-p", port, "-v", "-S", fmt.Sprint(pingSize))...)
		var s *rig.Side
		conn := untilListening(t, func() (*rdmacm.Conn, error) {
			s = &rig.Side{}
			return m.Dial(ctx, p[1].Addr().String()+":"+port, rdmacm.DialConfig{
				ConnConfig: rdmacm.ConnConfig{Setup: s.Setup(t, 1), MaxReads: 1}, Local: netip.AddrPortFrom(p[0].Addr(), 0)})
		})
		mem, batch := s.MR.Bytes(), s.Batch(t, 1)
		ask := func(at int) {
			r := s.MR.Region()
			b := binary.BigEndian.AppendUint64(mem[64:64], r.Addr+uint64(at))
			b = binary.BigEndian.AppendUint32(b, r.RKey)
			binary.BigEndian.AppendUint32(b, pingSize)
			batch.Send(1, verbs.Signaled, s.MR.SGE(64, 16))
			_, err := batch.Post()
			require.NoError(t, err)
			for _, wc := range s.Wait(t, 2) { // sent, and answered
				require.NoError(t, wc.Err())
			}
			s.Recv(t, 1, 64)
		}
		for i := range pings {
			copy(mem[pingData:], pingText(i))
			clear(mem[2*pingData : 3*pingData])
			ask(pingData)
			ask(2 * pingData)
			require.Equal(t, pingText(i), mem[2*pingData:2*pingData+pingSize])
		}
		require.NoError(t, conn.Disconnect(ctx))
		require.NoError(t, conn.Close())
		out := wait()
		require.Contains(t, out, "server ping data: rdma-ping-3")
	}
}

const (
	matchConns = 2
	matchCount = 4
	matchSize  = 100
)

var matchArgs = []string{"-c", fmt.Sprint(matchConns), "-C", fmt.Sprint(matchCount), "-S", fmt.Sprint(matchSize)}

// sendMessages is one side's part of ucmatose.
func sendMessages(t *testing.T, s *rig.Side, b *verbs.Batch) {
	for i := range matchCount {
		b.Send(uint64(i), verbs.Signaled, s.MR.SGE(pingData, matchSize))
	}
	_, err := b.Post()
	require.NoError(t, err)
}

func allGood(t *testing.T, wcs []verbs.WC) {
	t.Helper()
	for i := range wcs {
		require.NoError(t, wcs[i].Err())
	}
}

func TestUcmatoseServer(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	wait := program(t, "ucmatose", append(matchArgs, "-b", p[1].Addr().String(), "-p", "7210")...)
	var sides [matchConns]*rig.Side
	var conns [matchConns]*rdmacm.Conn
	for i := range sides {
		conns[i] = untilListening(t, func() (*rdmacm.Conn, error) {
			sides[i] = &rig.Side{}
			return m.Dial(ctx, p[1].Addr().String()+":7210", rdmacm.DialConfig{
				ConnConfig: rdmacm.ConnConfig{Setup: sides[i].SetupSize(t, matchCount, matchSize), MaxReads: 1}, Local: netip.AddrPortFrom(p[0].Addr(), 0)})
		})
	}
	for _, s := range sides {
		allGood(t, s.Wait(t, matchCount))
		sendMessages(t, s, s.Batch(t, matchCount))
		allGood(t, s.Wait(t, matchCount))
	}
	for _, c := range conns {
		<-c.Done()
		require.ErrorIs(t, c.Err(), rdmacm.ErrDisconnected)
		require.NoError(t, c.Close())
	}
	require.Contains(t, wait(), "disconnected")
}

func TestUcmatoseClient(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	wait := program(t, "ucmatose", append(matchArgs, "-b", p[0].Addr().String(), "-s", l.Addr().Addr().String(), "-p", portOf(l.Addr()))...)
	var conns [matchConns]*rdmacm.Conn
	var sides [matchConns]rig.Side
	for i := range conns {
		r, err := l.Accept(ctx)
		require.NoError(t, err)
		conns[i], err = r.Accept(ctx, rdmacm.ConnConfig{Setup: sides[i].SetupSize(t, matchCount, matchSize)})
		require.NoError(t, err)
	}
	for i := range sides {
		s := &sides[i]
		sendMessages(t, s, s.Batch(t, matchCount))
	}
	for i := range sides {
		allGood(t, sides[i].Wait(t, 2*matchCount))
	}
	for _, c := range conns {
		require.NoError(t, c.Disconnect(ctx))
		require.NoError(t, c.Close())
	}
	wait()
}

func TestUdaddyServer(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	wait := program(t, "udaddy", "-c", "1", "-C", fmt.Sprint(matchCount), "-S", fmt.Sprint(matchSize), "-b", p[1].Addr().String())
	var s rig.Side
	peer := untilListening(t, func() (*rdmacm.Peer, error) {
		return m.DialUD(ctx, p[1].Addr().String()+":7174", rdmacm.DialConfig{
			ConnConfig: rdmacm.ConnConfig{Setup: s.UDSetup(t, 2*matchCount)}, Local: netip.AddrPortFrom(p[0].Addr(), 0)})
	})
	b := s.Batch(t, matchCount)
	for i := range matchCount {
		b.Add(verbs.WR{ID: uint64(i), Flags: verbs.Signaled, Op: verbs.WRSendImm, Imm: s.QP.Num(), To: new(peer.Destination()), Local: []verbs.SGE{s.MR.SGE(pingData, matchSize)}})
	}
	_, err := b.Post()
	require.NoError(t, err)
	allGood(t, s.Wait(t, 2*matchCount)) // sent, and answered
	require.NoError(t, peer.Close())
	require.Contains(t, wait(), "data transfers complete")
}

func TestUdaddyClient(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":7174", rdmacm.ListenConfig{Type: verbs.UD}) // udaddy's only port
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	wait := program(t, "udaddy", "-c", "1", "-C", fmt.Sprint(matchCount), "-S", fmt.Sprint(matchSize),
		"-b", p[0].Addr().String(), "-s", l.Addr().Addr().String())
	r, err := l.Accept(ctx)
	require.NoError(t, err)
	var s rig.Side
	require.NoError(t, r.AcceptUD(rdmacm.ConnConfig{Setup: s.UDSetup(t, 2*matchCount)}))
	wcs := s.Wait(t, matchCount)
	allGood(t, wcs)
	qpn, ok := wcs[0].Imm()
	require.True(t, ok)
	require.Equal(t, wcs[0].SrcQP(), qpn)
	ah, err := s.PD.CreateAH(verbs.AHAttr{GID: verbs.GIDOf(r.RemoteAddr().Addr()), SGIDIndex: s.QP.GID().Index, Port: s.QP.GID().Port})
	require.NoError(t, err)
	b := s.Batch(t, matchCount)
	for i := range matchCount {
		b.Add(verbs.WR{ID: uint64(i), Flags: verbs.Signaled, Op: verbs.WRSendImm, Imm: s.QP.Num(), To: new(verbs.Destination{AH: ah, QPN: qpn, QKey: rdmacm.UDPQKey}), Local: []verbs.SGE{s.MR.SGE(pingData, matchSize)}})
	}
	_, err = b.Post()
	require.NoError(t, err)
	allGood(t, s.Wait(t, matchCount))
	require.Contains(t, wait(), "data transfers complete")
	require.NoError(t, ah.Close())
}
