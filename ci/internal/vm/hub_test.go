package vm

import (
	"bytes"
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
		c.SetDeadline(time.Now().Add(time.Second))
		_, err := c.Read(got)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	}
	// The sender hears nothing of itself; a port that goes away is forgotten.
	conns[0].SetDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = conns[0].Read(make([]byte, 1))
	require.Error(t, err)
	conns[2].Close()
	require.Eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.ports) == 2 }, time.Second, time.Millisecond)
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
