//go:build linux

package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// streamPair connects port 0 to port 1.
func streamPair(t testing.TB, m *rdmacm.CM, cfg stream.Config) (a, b *stream.Conn) {
	t.Helper()
	a, b, err := newStreams(rig.Ports(t), m, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	return a, b
}

func newStreams(p [2]rig.Port, m *rdmacm.CM, cfg stream.Config) (a, b *stream.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Timeout)
	defer cancel()
	l, err := stream.Listen(m, p[1].Addr().String()+":0", cfg)
	if err != nil {
		return nil, nil, err
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			c = nil
		}
		accepted <- c
	}()
	cfg.Dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	a, err = stream.Dial(ctx, m, l.Addr().String(), cfg)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	c := <-accepted
	return a, c.(*stream.Conn), l.Close()
}

func TestStream(t *testing.T) {
	rig.CMPorts(t)
	a, b := streamPair(t, rig.NewCM(t), stream.Config{})
	require.Equal(t, "rdma", a.LocalAddr().Network())
	require.Equal(t, a.LocalAddr().String(), b.RemoteAddr().String())
	n, err := a.Write([]byte("hello"))
	require.NoError(t, err)
	require.Equal(t, 5, n)
	buf := make([]byte, 100)
	n, err = b.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "hello", string(buf[:n]))

	// Half close: the other direction goes on.
	require.NoError(t, a.CloseWrite())
	require.NoError(t, a.CloseWrite())
	_, err = a.Write([]byte("more"))
	require.ErrorIs(t, err, syscall.EPIPE)
	_, err = b.Read(buf)
	require.Equal(t, io.EOF, err)
	_, err = b.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, b.Close())
	got, err := io.ReadAll(a)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
	<-a.Conn().Done()
	_, err = a.Write([]byte("too late"))
	require.ErrorIs(t, err, syscall.EPIPE)
	_, err = b.Read(buf)
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// Package nettest's description of what a net.Conn does.
func TestStreamIsAConn(t *testing.T) {
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		a, b, err := newStreams(p, m, stream.Config{})
		stop := func() {
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		}
		return a, b, stop, err
	})
}

// What the peer wrote before it closed is read, also if credit that this side gave
// back does not arrive any more, and its failure is found out first.
func TestStreamReadsOnAfterTheEnd(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	for _, messages := range []int{16, 64, 128} {
		a, b := streamPair(t, m, stream.Config{Messages: messages})
		var want []byte
		for i := range messages - 2 {
			want = append(want, byte(i))
			_, err := a.Write(want[i:])
			require.NoError(t, err)
		}
		require.NoError(t, a.Close())
		<-b.Conn().Done()
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// Small rings and few messages make every limit count, in both directions at
// once.
func TestStreamFlowControl(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	for _, cfg := range []stream.Config{{Buffer: 4096, Messages: 8}, {Buffer: 5000, Messages: 9}, {Buffer: 1 << 20, Messages: 8}} {
		a, b := streamPair(t, m, cfg)
		const size = 300 << 10
		data := make([]byte, size)
		rig.Fill(data, 5)
		errs := make(chan error, 4)
		pump := func(s *stream.Conn, seed uint64) {
			r := rand.New(rand.NewPCG(seed, 1))
			for at := 0; at < size; {
				n := min(1+r.IntN(9000), size-at)
				if _, err := s.Write(data[at : at+n]); err != nil {
					errs <- err
					return
				}
				at += n
			}
			errs <- s.CloseWrite()
		}
		drink := func(s *stream.Conn) {
			got, err := io.ReadAll(s)
			if err == nil && !bytes.Equal(got, data) {
				err = errors.New("other bytes came")
			}
			errs <- err
		}
		go pump(a, 1)
		go pump(b, 2)
		go drink(a)
		go drink(b)
		for range 4 {
			require.NoError(t, <-errs)
		}
	}
}

func TestStreamWithoutCopies(t *testing.T) {
	rig.CMPorts(t)
	a, b := streamPair(t, rig.NewCM(t), stream.Config{Buffer: 4096})
	want := byte(0)
	for total := 0; total < 20000; {
		buf, err := a.Reserve(1000)
		require.NoError(t, err)
		require.NotEmpty(t, buf)
		for i := range buf {
			buf[i] = byte(total + i)
		}
		_, err = a.Write([]byte("between"))
		require.ErrorIs(t, err, verbs.ErrInUse)
		require.NoError(t, a.Commit(len(buf)))
		for left := len(buf); left > 0; {
			in, err := b.Peek()
			require.NoError(t, err)
			for _, v := range in {
				require.Equal(t, want, v)
				want++
			}
			require.ErrorIs(t, b.Discard(len(in)+1), verbs.ErrRange)
			require.NoError(t, b.Discard(len(in)))
			left -= len(in)
		}
		total += len(buf)
	}
	require.ErrorIs(t, a.Commit(1), verbs.ErrRange)
	_, err := a.Reserve(0)
	require.ErrorIs(t, err, verbs.ErrRange)
}

func TestStreamDeadlines(t *testing.T) {
	rig.CMPorts(t)
	a, b := streamPair(t, rig.NewCM(t), stream.Config{Buffer: 4096})
	require.NoError(t, a.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := a.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	require.NoError(t, a.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
	n, err := a.Write(make([]byte, 10000))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, 4096, n, "as much as the ring takes")
	require.NoError(t, a.SetDeadline(time.Time{}))
	_, err = io.ReadFull(b, make([]byte, 4096))
	require.NoError(t, err)
	_, err = a.Write(make([]byte, 100))
	require.NoError(t, err)
}

// A peer that vanishes without a word ends reads and writes.
func TestStreamReset(t *testing.T) {
	rig.CMPorts(t)
	a, b := streamPair(t, rig.NewCM(t), stream.Config{})
	go func() {
		time.Sleep(50 * time.Millisecond)
		b.Conn().QP().ToError()
		b.Conn().Disconnect(context.Background())
	}()
	_, err := a.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = a.Write(make([]byte, 1))
	require.Error(t, err)
	_, err = b.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestStreamDoesNotAllocate(t *testing.T) {
	rig.CMPorts(t)
	a, b := streamPair(t, rig.NewCM(t), stream.Config{})
	go io.Copy(b, b)
	buf := make([]byte, 1000)
	turn := func() {
		if _, err := a.Write(buf); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(a, buf); err != nil {
			t.Error(err)
		}
	}
	turn()
	runtime.GC()
	require.Less(t, testing.AllocsPerRun(200, turn), 0.1)
}

// BenchmarkStream is the rate of 64 KiB writes; BenchmarkRawWrite is what
// the device does without a stream around it.
func BenchmarkStream(b *testing.B) {
	rig.CMPorts(b)
	x, y := streamPair(b, rig.NewCM(b), stream.Config{})
	const size = 64 << 10
	out := make([]byte, size)
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{y}, make([]byte, size))
		done <- err
	}()
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Write(out); err != nil {
			b.Fatal(err)
		}
	}
	if err := x.CloseWrite(); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRawWrite(b *testing.B) {
	const size, depth = 64 << 10, 16
	x, y := rig.NewPair(b, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	batch := x.Batch(b, 1)
	wcs := make([]verbs.WC, depth)
	b.SetBytes(size)
	flying := 0
	ctx := context.Background()
	reap := func(below int) {
		for flying > below {
			n, err := x.CQ.Wait(ctx, wcs)
			if err != nil {
				b.Fatal(err)
			}
			for i := range wcs[:n] {
				if err := wcs[i].Err(); err != nil {
					b.Fatal(err)
				}
			}
			flying -= n
		}
	}
	i := 0
	for b.Loop() {
		reap(depth - 1)
		at := i % depth * size
		batch.Write(uint64(i), verbs.Signaled, y.MR.Region().At(uint64(at)), x.MR.SGE(at, size))
		if _, err := batch.Post(); err != nil {
			b.Fatal(err)
		}
		flying++
		i++
	}
	reap(0)
}
