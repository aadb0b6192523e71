package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/internal/pending"
)

func TestRefusalsByCause(t *testing.T) {
	var r refusals
	for _, err := range []error{greet.ErrDenied, greet.ErrFull, fmt.Errorf("read: %w", os.ErrDeadlineExceeded), pending.ErrCrowded, greet.ErrMalformed, ErrClosed} {
		r.add(err)
	}
	require.Equal(t, Refused{Denied: 1, Full: 1, Silent: 1, Crowded: 1, Other: 2}, r.stats())
}

// A client with another key, and one that speaks something else, are counted when they are closed.
func TestRefusedAreCounted(t *testing.T) {
	d, err := newAdmission(t.Context(), "127.0.0.1:0", nil)
	require.NoError(t, err)
	d.set("shop", tenant{bytes.Repeat([]byte("k"), greet.MinKey), &Server{links: newQueue(nil), streams: newQueue(nil)}})
	d.open()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", d.listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	_, err = link.Greet(ctx, dial(), greet.Hello{Transport: greet.TCP, Tenant: "shop"}, bytes.Repeat([]byte("x"), greet.MinKey), nil)
	require.ErrorIs(t, err, greet.ErrDenied)
	counted := func(r Refused) {
		require.Eventually(t, func() bool { return d.refused.stats() == r }, patient, time.Millisecond)
	}
	counted(Refused{Denied: 1})
	_, err = dial().Write(bytes.Repeat([]byte("GET / "), 200))
	require.NoError(t, err)
	counted(Refused{Denied: 1, Other: 1})
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, d.close())
}
