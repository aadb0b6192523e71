package vm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHubReachesAllOthers(t *testing.T) {
	h := NewHub()
	defer h.Close()
	var conns []net.Conn
	for range 3 {
		c, f, err := socketPair()
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
		card, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		h.Add(card)
	}
	frame := append([]byte{0, 0, 0, 5}, "hello"...)
	_, err := conns[0].Write(frame)
	require.NoError(t, err)
	for _, c := range conns[1:] {
		got := make([]byte, len(frame))
		c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Read(got)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	}
	// The sender hears nothing of itself; a port that goes away is forgotten.
	conns[0].SetDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = conns[0].Read(make([]byte, 1))
	require.Error(t, err)
	conns[2].Close()
	require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.ports) == 2 }, time.Minute, time.Millisecond)
}

// A host that does not read, since it boots, hangs or has its card switched off,
// holds up no other host, and what it has read in part is followed by whole frames.
func TestHubDoesNotWaitForADeafHost(t *testing.T) {
	h := NewHub()
	defer h.Close()
	var hosts [3]net.Conn
	for i := range hosts {
		c, f, err := socketPair()
		require.NoError(t, err)
		defer c.Close()
		card, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		hosts[i] = c
		h.Add(card)
	}
	const frames, size = 4000, 1500
	sender, listener, deaf := hosts[0], hosts[1], hosts[2]
	for _, c := range hosts {
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	frame := func(n int) []byte {
		f := make([]byte, 4+size)
		binary.BigEndian.PutUint32(f, size)
		binary.BigEndian.PutUint32(f[4:], uint32(n))
		return f
	}
	go func() {
		for n := range frames {
			if _, err := sender.Write(frame(n)); err != nil {
				return
			}
		}
	}()
	r := bufio.NewReader(listener)
	for n := range frames {
		got, err := readFrame(r)
		require.NoError(t, err, "frame %d", n)
		require.Equal(t, frame(n), got, "a slow listener loses nothing")
	}
	// When it reads again it gets whole frames, and new ones after the old.
	r = bufio.NewReader(deaf)
	for last := -1; last < frames; {
		got, err := readFrame(r)
		require.NoError(t, err)
		n := int(binary.BigEndian.Uint32(got[4:]))
		require.Equal(t, frame(n), got)
		require.Greater(t, n, last)
		last = n
		_, err = sender.Write(frame(frames + n))
		require.NoError(t, err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := readFrame(bytes.NewReader(b))
		if err == nil {
			require.Equal(t, b[:len(frame)], frame)
		}
	})
}
