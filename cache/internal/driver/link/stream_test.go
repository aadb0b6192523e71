package link

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testconn"
)

// The last word goes after the context has ended, which ends everything else; then the connection is closed.
func TestLastWord(t *testing.T) {
	near, far := testconn.TCP(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := NewPartingStream(ctx, near, 0)
	require.NoError(t, s.Write(ctx, []byte("first ")))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Next(ctx)
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.ErrorIs(t, s.Write(ctx, []byte("too late")), context.Canceled)
	require.NoError(t, s.Part([]byte("last"), time.Minute))
	require.NoError(t, far.SetReadDeadline(time.Now().Add(10*time.Second)))
	b, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Equal(t, "first last", string(b))
	require.Error(t, s.Write(context.Background(), []byte("x")))

	near, far = testconn.TCP(t)
	require.NoError(t, NewPartingStream(t.Context(), near, 0).Part([]byte("last"), time.Minute), "before that")
	b, err = io.ReadAll(far)
	require.NoError(t, err)
	require.Equal(t, "last", string(b))
}

// A last word behind a part of a message would be taken for the rest of that.
func TestNoLastWordInTheMiddle(t *testing.T) {
	near, far := testconn.TCP(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := NewPartingStream(ctx, near, 0)
	const long = 64 << 20 // more than anybody keeps
	written := make(chan error, 1)
	go func() { written <- s.Write(ctx, make([]byte, long)) }()
	_, err := io.ReadFull(far, make([]byte, 1000))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-written, context.Canceled)
	require.ErrorIs(t, s.Write(ctx, []byte("more")), context.Canceled)
	require.ErrorIs(t, s.Part([]byte("last"), time.Minute), errTorn)
	b, err := io.ReadAll(far)
	require.NoError(t, err)
	require.Less(t, len(b), long)
	require.NotContains(t, string(b[max(0, len(b)-10):]), "last")
}

// Part gives up on a peer that does not take the last message.
func TestLastWordThatNobodyTakes(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, NewPartingStream(ctx, near, 0).Part([]byte("last"), time.Millisecond))
	_, err := near.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}
