//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The first record is asked for as often as Zipf's law has it, and all are asked for.
func TestPick(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	const n = 200_000
	var seen [records]int
	for range n {
		seen[pick(dice)]++
	}
	require.NotContains(t, seen[:], 0)
	want := n / cumulated[records-1]
	require.InEpsilon(t, want, float64(seen[0]), 0.05)
	require.Greater(t, seen[0], seen[1])
}

// What the cache stands beside does what is asked of it; a process is there when it listens.
func TestRival(t *testing.T) {
	program, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	host, port, err := net.SplitHostPort(at)
	require.NoError(t, err)
	c, err := start(ctx, at, listens, program, "-l", host, "-p", port, "-U", "0", "-u", "root")
	require.NoError(t, err)
	defer c.kill()
	r, err := dialRival(ctx, at)
	require.NoError(t, err)
	hit, err := r.do(ctx, 0, 1, false)
	require.NoError(t, err)
	require.False(t, hit, "it is loaded")
	for worker := range workers {
		hit, err = r.do(ctx, worker, 1, false)
		require.NoError(t, err)
		require.True(t, hit)
		_, err = r.do(ctx, worker, worker, true)
		require.NoError(t, err)
	}
	all, err := crowd(ctx, r.do)
	require.NoError(t, err)
	require.Positive(t, all.rate())
	require.Positive(t, all.us(50))
	require.Positive(t, all.hits())
	require.NoError(t, r.close())
	require.NoError(t, c.kill())
	require.NoError(t, c.kill(), "once more")
	_, err = r.do(ctx, 0, 1, false)
	require.Error(t, err)
	var none *rival
	require.NoError(t, none.set(ctx, 0, 1))
}

// A server that opens its device resets connections: it is not ready for clients.
func TestServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}()
	require.Error(t, serves(t.Context(), l.Addr().String()))
}
