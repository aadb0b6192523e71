package proto

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestBytesAreKept(t *testing.T) {
	a, b := net.Pipe()
	sent := Message{Op: OpExec, Argv: Bytes([]string{"printf", "\xff\xfe<\u2028", ""}), Env: Bytes([]string{"X=\x80"})}
	go NewConn(a).Send(sent)
	got, err := NewConn(b).Receive()
	require.NoError(t, err)
	require.Equal(t, sent, got)
	require.Equal(t, []string{"printf", "\xff\xfe<\u2028", ""}, Strings(got.Argv))
}

func TestInputHasAnEnd(t *testing.T) {
	for _, size := range []int{0, 1, maxFrame, 3*maxFrame + 5} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		var line, out bytes.Buffer
		require.NoError(t, SendInput(&line, bytes.NewReader(data)))
		line.WriteString("what comes later")
		require.NoError(t, ReceiveInput(&out, iotest.OneByteReader(&line)))
		require.True(t, bytes.Equal(data, out.Bytes()))
	}
}

// A program that does not read its input does not block the sender.
func TestInputThatNobodyReads(t *testing.T) {
	var line bytes.Buffer
	require.NoError(t, SendInput(&line, bytes.NewReader(make([]byte, 5*maxFrame))))
	r, w := io.Pipe()
	r.CloseWithError(errors.New("closed"))
	require.NoError(t, ReceiveInput(w, &line))
}

func FuzzReceiveInput(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if err := ReceiveInput(&out, bytes.NewReader(b)); err == nil {
			require.LessOrEqual(t, out.Len(), len(b)-4)
		}
	})
}
