package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPeersAgree(t *testing.T) {
	a := parsed(t, "send_lat -s 64").params
	encode := func(p params) []byte {
		b, err := p.encode()
		require.NoError(t, err)
		return b
	}
	got, err := a.agree(encode(a))
	require.NoError(t, err)
	require.Equal(t, a, got)

	b := a
	b.Size, b.Events = 128, true
	_, err = a.agree(encode(b))
	require.EqualError(t, err, "the peer runs another test: -s is 64 here and 128 there, -e is false here and true there")

	b = a
	b.Version++
	_, err = a.agree(encode(b))
	require.ErrorContains(t, err, "version 1 here, 2 there")

	b = a
	b.MTU = 1024
	got, err = a.agree(encode(b))
	require.NoError(t, err)
	require.Equal(t, 1024, got.MTU, "the smaller one counts")
	got, err = b.agree(encode(a))
	require.NoError(t, err)
	require.Equal(t, 1024, got.MTU)
	b.MTU = 77
	_, err = a.agree(encode(b))
	require.ErrorContains(t, err, "does not exist")

	for _, rubbish := range []string{"", "\x00rubbish", "{}", "[]", `{"v":"1"}`} {
		_, err = a.agree([]byte(rubbish))
		require.ErrorContains(t, err, "no rdmabench", rubbish)
	}
	for _, odd := range []string{`{"v":1,"more":1}`, `{"v":1,"size":"big"}`} {
		_, err = a.agree([]byte(odd))
		require.ErrorContains(t, err, "the peer's parameters", odd)
	}
}

func FuzzAgree(f *testing.F) {
	p := params{Version: paramsVersion, Test: "read_lat"}
	b, _ := p.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := p.agree(b)
		if err == nil && (got.Test != p.Test || got.MTU != 0 && mtuOf(got.MTU) == 0) {
			t.Fatalf("%q gave %+v", b, got)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(message{word: wordFailed, text: "why"}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, m.bytes()) {
			t.Fatalf("%q read as %+v", b, m)
		}
	})
}

func TestMessages(t *testing.T) {
	for _, m := range []message{{word: wordReady}, {word: wordDone, count: 1 << 40}, {word: wordFailed, text: "out of memory"}} {
		got, err := readMessage(bytes.NewReader(m.bytes()))
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	long := message{word: wordFailed, text: strings.Repeat("x", 1000)}
	got, err := readMessage(bytes.NewReader(long.bytes()))
	require.NoError(t, err)
	require.Len(t, got.text, maxText)
	_, err = readMessage(strings.NewReader("HTTP/1.1 400 Bad Request"))
	require.ErrorContains(t, err, "malformed")
}

// controls are the two ends of a connection, one of them as the peer's.
func controls(t *testing.T) (*control, net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &control{conn: a}, b
}

func TestPeerEndsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		peer func(net.Conn)
		want string
	}{
		"done":    {func(c net.Conn) { c.Write(message{word: wordDone, count: 7}.bytes()) }, errPeerDone.Error()},
		"failed":  {func(c net.Conn) { c.Write(message{word: wordFailed, text: "no memory"}.bytes()) }, "the peer stopped: no memory"},
		"gone":    {func(c net.Conn) { c.Close() }, errPeerGone.Error()},
		"rubbish": {func(c net.Conn) { c.Write([]byte("GET / HTTP/1.1\r\n")) }, "malformed"},
		"early":   {func(c net.Conn) { c.Write(message{word: wordReady}.bytes()) }, "out of step"},
	} {
		t.Run(name, func(t *testing.T) {
			local, peer := controls(t)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			local.watch(ctx, cancel)
			go c.peer(peer)
			<-ctx.Done()
			require.ErrorContains(t, context.Cause(ctx), c.want)
			n, err := local.peerDone(ctx)
			if name == "done" {
				require.NoError(t, err)
				require.EqualValues(t, 7, n)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestInterruptEndsHearing(t *testing.T) {
	local, _ := controls(t)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := local.hear(ctx)
	require.ErrorIs(t, interrupted(ctx, err), errInterrupted)
}

func TestStalledTestIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		var beat heartbeat
		defer beat.watch(cancel)()
		for begun := time.Now(); time.Since(begun) < 5*stallTime; time.Sleep(stallTime / 20) {
			beat.tick()
			require.NoError(t, ctx.Err())
		}
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), errStalled)
	})
}

func TestNoServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	o := parsed(t, "read_lat -p 1 127.0.0.1")
	_, err := dial(ctx, o)
	require.Error(t, err)
	require.False(t, errors.Is(err, errInterrupted))
}
