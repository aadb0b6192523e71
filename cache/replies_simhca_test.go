//go:build simhca && linux && cgo

package cache_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/verbs"
)

// A client that asks for many long values at once, by calls, gets all of them: more replies than may wait, and than
// the client has receives for.
func TestSimulatedManyLongReplies(t *testing.T) {
	s := simulatedServer(t, server.Config{})
	pd := simulated.PD(t)
	r, ctx := connectBy(t, verbs.LinkConfig{PD: pd}, s.Addr().String(), 64, "", nil), within(t)
	value := bytes.Repeat([]byte("long"), 50_000)
	set(t, s, key(1), value)
	const many = 50
	var all []byte
	for id := range uint64(many) {
		all = wire.AppendRequest(all, &wire.Request{ID: id, Epoch: s.Epoch(), Request: kv.Request{Op: kv.OpGet, Key: key(1)}})
	}
	sent := make(chan error, 1)
	go func() { sent <- r.conn.Write(ctx, all) }()
	for id := uint64(0); id < many; {
		b, err := r.conn.Next(ctx)
		require.NoError(t, err)
		h, err := wire.ReadHeader(b)
		require.NoError(t, err)
		if h.Kind != wire.KindReply {
			continue
		}
		a, err := wire.ReadReply(b)
		require.NoError(t, err)
		require.Equal(t, id, a.ID)
		require.Equal(t, value, a.Value)
		id++
	}
	require.NoError(t, <-sent)
}
