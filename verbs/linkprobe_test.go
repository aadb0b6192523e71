//go:build linux

package verbs

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// narrow is an end of a connection that loses what is written in long packets, and all
// behind it.
type narrow struct {
	net.Conn
	mtu int
}

func (n *narrow) Write(b []byte) (int, error) {
	if len(b) > n.mtu {
		n.mtu = -1
	}
	if n.mtu < 0 {
		return len(b), nil
	}
	return n.Conn.Write(b)
}

// A probe that is lost, on the way to the peer or from it, ends the barrier with an error of
// its own; a peer that says nothing is not taken for that.
func TestBarrierProbesThePath(t *testing.T) {
	run := func(ctx context.Context, near, far net.Conn, probe int) (errs [2]error) {
		done := make(chan error)
		go func() { done <- new(Link).barrier(ctx, far, true, probe) }()
		errs[0] = new(Link).barrier(ctx, near, true, probe)
		errs[1] = <-done
		return errs
	}
	for _, probe := range []int{0, 1024, 4096} {
		near, far := net.Pipe()
		require.Equal(t, [2]error{}, run(t.Context(), near, far, probe))
	}
	ctx, cancel := context.WithCancel(t.Context())
	near, far := net.Pipe()
	var heard sync.WaitGroup
	heard.Add(2)
	go func() { heard.Wait(); time.Sleep(probeTimeout); cancel() }()
	errs := run(ctx, &readBytes{&narrow{near, 1500}, 3 + 4096 + probeHeaders, heard.Done}, &readBytes{far, 3, heard.Done}, 4096)
	require.ErrorIs(t, errs[1], ErrPathMTU)
	require.ErrorIs(t, errs[1], context.Canceled)
	require.ErrorIs(t, errs[0], context.Canceled)
	require.NotErrorIs(t, errs[0], ErrPathMTU, "a pipe does not say what has arrived")

	ctx, cancel = context.WithCancel(t.Context())
	near, far = net.Pipe()
	go func() {
		io.ReadFull(far, make([]byte, 3+1024+probeHeaders))
		cancel()
	}()
	err := new(Link).barrier(ctx, near, true, 1024)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrPathMTU, "the peer is silent")

	near, far = net.Pipe()
	go func() {
		io.ReadFull(far, make([]byte, 3+1024+probeHeaders))
		far.Write([]byte{linkProbe, 4, 20, 0})
		time.Sleep(probeTimeout)
		far.Close()
	}()
	err = new(Link).barrier(t.Context(), near, true, 1024)
	require.ErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, err, ErrPathMTU, "the peer has closed the connection")

	ctx, cancel = context.WithCancel(t.Context())
	near, far = net.Pipe()
	go func() {
		io.ReadFull(far, make([]byte, 3+1024+probeHeaders))
		far.Write([]byte{linkProbe, 4, 20, 0})
		cancel()
	}()
	err = new(Link).barrier(ctx, near, true, 1024)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrPathMTU, "the probe may be under way")

	near, far = net.Pipe()
	go func() {
		far.Write([]byte{linkProbe, 0, 2, 0, 0, linkProbe})
		io.ReadFull(far, make([]byte, 1))
	}()
	require.ErrorIs(t, new(Link).barrier(t.Context(), near, true, 0), ErrUnreachable, "one probe is enough")
}

// readBytes calls reached when so many bytes have been read.
type readBytes struct {
	net.Conn
	wait    int
	reached func()
}

func (r *readBytes) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if r.wait -= n; r.wait <= 0 && n > 0 {
		r.reached()
	}
	return n, err
}

// What a peer's host has not taken is unacknowledged.
func TestUnacknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer near.Close()
	far, err := l.Accept()
	require.NoError(t, err)
	defer far.Close()
	_, err = near.Write([]byte("all"))
	require.NoError(t, err)
	_, err = io.ReadFull(far, make([]byte, 3))
	require.NoError(t, err)
	for unacknowledged(near) > 0 { // until the acknowledgement has come
		runtime.Gosched()
	}
	full, cancel := context.WithCancel(t.Context())
	defer interruptible(full, near)()
	go func() {
		for unacknowledged(near) == 0 {
			runtime.Gosched()
		}
		cancel()
	}()
	_, err = near.Write(bytes.Repeat([]byte("more"), 4<<20)) // than a receive buffer holds
	require.Error(t, err)
	require.Positive(t, unacknowledged(near))
	require.Zero(t, unacknowledged(&narrow{}), "not known")
}

// A connection ends within the time of its keep-alive also while it waits for
// acknowledgements.
func TestKeepConnAliveWhileItRetransmits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for every, want := range map[time.Duration]int{12 * time.Second: 12000, time.Millisecond: 4000, -1: 0} {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		keepConnAlive(conn, every)
		raw, err := conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}))
	}
}
