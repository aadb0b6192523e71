//go:build linux

package dc_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// TestStalledTargetKeepsSessions: keep-alives that lie unread while the target stands
// still for longer than a lease are read before sessions expire.
func TestStalledTargetKeepsSessions(t *testing.T) {
	const lease = 2 * time.Second
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Lease: lease})
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolve(t, i, target, 0)
	do(t, i, p, a.write(1, b, 0))
	release := target.Stall()
	time.Sleep(lease + lease/2)
	release()
	time.Sleep(lease / 8)
	require.Zero(t, target.Stats().Expired)
	do(t, i, p, a.write(2, b, 0))
	require.EqualValues(t, 1, target.Stats().Attaches)
}

// TestRequestsKeepSessions: what is used every now and then, and left meanwhile, stays
// for longer than a lease without a keep-alive.
func TestRequestsKeepSessions(t *testing.T) {
	const lease = 4 * time.Second
	a, b := newHosts(t)
	if !driver.SoftRoCE(b.dev) {
		t.Skip("where that is not known, there are keep-alives")
	}
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	keptFreely.set(i)
	var targets [2]*dc.Target
	var peers [2]*dc.Peer
	var kept [2]*atomic.Uint64
	for k := range targets { // before either has a session, with a keep-alive that would be due meanwhile
		targets[k] = b.target(t, dc.TargetConfig{Lease: lease})
		peers[k] = resolve(t, i, targets[k], 0)
		kept[k] = targets[k].CountKeepAlives()
	}
	turn := time.Now() // when the last one began: its target keeps the context until the next one
	due := uint64(0)   // keep-alives, because the machine stood still
	ended := func() {
		t.Helper()
		took := time.Since(turn)
		if took > lease/4 {
			t.Skip("the machine stood still for ", took)
		}
		due += uint64(took / (lease / 8))
	}
	for end := turn.Add(lease + lease/6); turn.Before(end); time.Sleep(lease / 50) {
		for _, p := range peers {
			begun := time.Now()
			do(t, i, p, a.write(2, b, 0))
			ended()
			turn = begun
		}
	}
	sent := kept[0].Load() + kept[1].Load()
	ended()
	require.LessOrEqual(t, sent, due, "keep-alives")
	for _, target := range targets {
		require.EqualValues(t, 1, target.Stats().Attaches)
		require.Zero(t, target.Stats().Expired)
	}
	require.Zero(t, i.Stats().Failures)
}

// TestResponderIsReplaced: the queue pair of a session that failed stays until there is
// another one in its place, so that the two cannot have one number; the context is
// tried again until that is so.
func TestResponderIsReplaced(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Responders: 1, Retry: 10 * time.Millisecond})
	failing := a.initiator(t, dc.InitiatorConfig{})
	p := resolve(t, failing, target, 0)
	do(t, failing, p, a.write(1, b, 0))
	before := target.Responder(0)

	closed, err := b.dev.AllocPD()
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	pd := target.CreateFrom(closed)
	require.NoError(t, failing.Close()) // with a session in use: the number must not come again
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	next := resolve(t, i, target, 0)
	require.ErrorIs(t, i.Do(ctx, next, a.write(2, b, 0)), context.DeadlineExceeded, "there is no responder context")
	require.Same(t, before, target.Responder(0))
	require.Eventually(t, func() bool { // the last word of the initiator that had it may be on its way
		attr, err := before.Query()
		require.NoError(t, err, "it is still there")
		return attr.State == verbs.StateError
	}, testTimeout, time.Millisecond, "and carries out nothing")
	require.Same(t, before, target.Responder(0))

	target.CreateFrom(pd)
	do(t, i, next, a.write(3, b, 0))
	require.NotEqual(t, before.Num(), target.Responder(0).Num())
	_, err = before.Query()
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestDetachedAndSendsOn: what an initiator sends when it has detached, before the queue
// pair is reset, is its own, and not of the initiator that the queue pair serves next.
func TestDetachedAndSendsOn(t *testing.T) {
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{Responders: 1})
	i := a.initiator(t, dc.InitiatorConfig{})
	p := resolve(t, i, target, 0)
	recv, err := target.NewRecvBatch(2)
	require.NoError(t, err)
	for n := range 2 {
		recv.Recv(uint64(n), b.mr.SGE(64*n, 64))
	}
	_, err = recv.Post()
	require.NoError(t, err)
	send := func() { do(t, i, p, dc.Request{Op: dc.Send, Local: a.mr.SGE(0, 5)}) }
	send()
	const next = 1 << 63
	require.NoError(t, target.Rerelease(0, send, next))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var sessions []uint64
	for len(sessions) < 2 {
		var rs [2]dc.Received
		n, err := target.Wait(ctx, rs[:])
		require.NoError(t, err)
		for _, r := range rs[:n] {
			require.NoError(t, r.Err)
			sessions = append(sessions, r.Session)
		}
	}
	_, known := i.Owns(target, sessions[0])
	require.True(t, known)
	require.Equal(t, sessions[0], sessions[1])
}

// TestTrafficClass is in the header of all packets: those of requests and of control
// messages on the way there, and of the replies to both on the way back.
func TestTrafficClass(t *testing.T) {
	const there, back = 0x20, 0x48
	a, b := newHosts(t)
	es := lab.Require(t, 2)
	link, err := net.InterfaceByName(es[1].Netdev)
	require.NoError(t, err)
	const all = 0x0300 // ETH_P_ALL in network byte order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, all)
	require.NoError(t, err)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))

	target := b.target(t, dc.TargetConfig{TrafficClass: back})
	i := a.initiator(t, dc.InitiatorConfig{TrafficClass: there})
	p := resolve(t, i, target, 0)
	do(t, i, p, a.write(1, b, 0))
	require.NoError(t, i.Detach(p))
	do(t, i, p, a.write(2, b, 0))

	seen := map[uint16]int{}           // by direction and traffic class
	time.Sleep(300 * time.Millisecond) // for what comes late
	packet := make([]byte, 2048)
	for {
		n, err := syscall.Read(fd, packet)
		if err != nil {
			require.ErrorIs(t, err, syscall.EAGAIN)
			break
		}
		const udp, port = 17, 4791
		if n < 28 || packet[0] != 0x45 || packet[9] != udp || binary.BigEndian.Uint16(packet[22:]) != port {
			continue
		}
		from := uint16(0)
		if [4]byte(packet[12:16]) == es[1].Addr.As4() {
			from = 1
		}
		seen[from<<8|uint16(packet[1])]++
	}
	require.Len(t, seen, 2, "%v", seen)
	require.Greater(t, seen[there], 3, "%v", seen)
	require.Greater(t, seen[1<<8|back], 3, "%v", seen)
}
