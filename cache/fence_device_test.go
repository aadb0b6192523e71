//go:build linux

package cache_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// stranded is a client that READs through a server's target and does what a test wants.
type stranded struct {
	t       *testing.T
	conn    net.Conn
	i       *dc.Initiator
	peer    *dc.Peer
	mr      *verbs.MR
	regions []verbs.Region
}

func strand(t *testing.T, s *server.Server) *stranded {
	t.Helper()
	r := &stranded{t: t, i: hasty(t)}
	conn, err := near(t, cache.Config{}).Dialer.DialContext(within(t), "tcp", s.Addr().String())
	require.NoError(t, err)
	r.conn = conn
	t.Cleanup(func() { _ = conn.Close() })
	_, err = link.Greet(within(t), conn, greet.Hello{Transport: greet.DC}, nil, nil)
	require.NoError(t, err)
	b, err := link.NewStream(t.Context(), conn, 0).Next(within(t))
	require.NoError(t, err)
	target, err := wire.ReadTarget(b)
	require.NoError(t, err)
	var at dc.Address
	require.NoError(t, at.UnmarshalBinary(target.Address))
	r.peer, err = r.i.Resolve(at, target.Key)
	require.NoError(t, err)
	for b := target.Regions; len(b) > 0; b = b[verbs.RegionSize:] {
		var region verbs.Region
		require.NoError(t, region.UnmarshalBinary(b[:verbs.RegionSize]))
		r.regions = append(r.regions, region)
	}
	r.mr, err = r.i.PD().AllocMR(4096, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.mr.Close()) })
	return r
}

// write WRITEs eight bytes.
func (r *stranded) write(to verbs.Remote) error {
	return r.i.Do(within(r.t), r.peer, dc.Request{Op: dc.Write, Remote: to, Local: r.mr.SGE(0, 8)})
}

// record READs what an entry points at.
func (r *stranded) record(e *wire.Entry, key []byte) (wire.Record, error) {
	n := e.Place.Length()
	req := dc.Request{Op: dc.Read, Remote: r.regions[e.Place.Region()].At(uint64(e.Place.Offset())), Local: r.mr.SGE(0, n)}
	if err := r.i.Do(within(r.t), r.peer, req); err != nil {
		return wire.Record{}, err
	}
	return wire.Validate(r.mr.Bytes()[:n], e, key)
}

// Clients that hang, or are gone without a word, READ nothing any more when what they could READ is used
// again: not by the target that they know. The others READ through another one by then.
func TestLateClientsReadNothingThroughTheTarget(t *testing.T) {
	s := serve(t, server.Config{Lease: time.Second, DC: server.DCConfig{Responders: 8}})
	ctx := within(t)
	c := dial(t, s.Addr().String(), cache.Config{DC: hasty(t)})
	silent, gone := strand(t, s), strand(t, s)
	e := set(t, s, key(1), []byte("old"))
	set(t, s, key(2), []byte("for long"))
	whole(t, c, 2)
	for _, r := range []*stranded{silent, gone} {
		rec, err := r.record(&e, key(1))
		require.NoError(t, err)
		require.Equal(t, "old", string(rec.Value))
	}
	require.NoError(t, gone.conn.Close())

	set(t, s, key(1), []byte("new"))
	_, err := gone.record(&e, key(1))
	require.ErrorIs(t, err, wire.Dead, "the tombstone, in quarantine")
	require.NotZero(t, s.Stats().Quarantine)
	for s.Stats().Quarantine > 0 { // the others go on meanwhile
		it, err := c.Get(ctx, key(2))
		require.NoError(t, err)
		require.Equal(t, "for long", string(it.Value))
	}
	unanswered := make(chan error, 2)
	for _, r := range []*stranded{silent, gone} {
		go func() {
			_, err := r.record(&e, key(1))
			unanswered <- err
		}()
	}
	for range 2 {
		err := <-unanswered
		require.Error(t, err)
		var refusal wire.Refusal
		require.NotErrorAs(t, err, &refusal, "somebody has answered")
	}
	// On a machine that is busy the one that goes on may be late, too, and has another connection then.
	require.Eventually(t, func() bool { st := s.Stats().DC; return st.Gone == 0 && st.Clients == 1 }, stuck, time.Millisecond)
	require.NotZero(t, s.Stats().DC.Replaced)
	require.Eventually(t, func() bool {
		hits := c.Stats().Hits
		_, err := c.Get(ctx, key(2))
		require.NoError(t, err)
		return c.Stats().Hits > hits
	}, stuck, 10*time.Millisecond, "by READ, of the new target")
}
