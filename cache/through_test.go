package cache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// What a server says of its target is believed if it was sealed in this greeting, and unchanged.
func TestTargetIsSealed(t *testing.T) {
	key := []byte("a key of sixteen")
	greeted := func() (client, server greet.Seal) {
		c := greet.NewClient(greet.Hello{Transport: greet.DC, Tenant: "tenant"}, key)
		s := greet.NewServer(c.Hello(), key)
		proof, err := c.HandleChallenge(s.Challenge())
		require.NoError(t, err)
		require.NoError(t, s.HandleProof(proof))
		require.NoError(t, c.HandleVerdict(s.Last(nil)))
		return c.Seal(), s.Seal()
	}
	mine, theirs := greeted()
	_, others := greeted()
	said := wire.Target{Epoch: 1, Number: 2, Key: 3, Address: []byte("address"), Regions: []byte("regions")}
	sealed := func(s greet.Seal) wire.Target {
		told := said
		told.Seal = s.Of(told.Said())
		return told
	}
	s := session{seal: mine}
	good := sealed(theirs)
	got, err := s.readTarget(wire.AppendTarget(nil, &good))
	require.NoError(t, err)
	require.Equal(t, good, got)
	b := wire.AppendTarget(nil, &good)
	for i := wire.HeaderSize; i < len(b); i++ {
		b[i] ^= 1
		_, err := s.readTarget(b)
		require.Error(t, err, i)
		b[i] ^= 1
	}
	for _, bad := range []wire.Target{said, sealed(others), sealed(mine)} {
		_, err = s.readTarget(wire.AppendTarget(nil, &bad))
		require.ErrorIs(t, err, ErrDenied)
	}
	require.ErrorIs(t, s.toldTarget(b), wire.Malformed, "a session with queue pairs is told of none")
}

// told is a connection by which a server says one thing.
type told []byte

func (told) Write(context.Context, []byte) error    { return nil }
func (b told) Next(context.Context) ([]byte, error) { return b, nil }
func regions(t *testing.T, all ...verbs.Region) (b []byte) {
	for _, r := range all {
		var err error
		b, err = r.AppendBinary(b)
		require.NoError(t, err)
	}
	return b
}

// A client that comes while the server has no target knows what it will READ when there is one. A server
// that has none for clients is no such server.
func TestServerWithoutATargetJustNow(t *testing.T) {
	records := verbs.Region{Addr: 1 << 20, Length: 1 << 21, RKey: 3}
	meet := func(target wire.Target) (*session, error) {
		s := &session{through: &through{}, conn: told(wire.AppendTarget(nil, &target)), stop: func() {}}
		return s, s.meetTarget(t.Context())
	}
	s, err := meet(wire.Target{Epoch: 1, Number: 4, Regions: regions(t, records)})
	require.NoError(t, err)
	require.Equal(t, []verbs.Region{records}, s.regions)
	require.Nil(t, s.through.now.Load())
	_, err = meet(wire.Target{Epoch: 1})
	require.ErrorIs(t, err, errNoTarget)
	for _, b := range [][]byte{nil, regions(t, records)[1:]} {
		_, err = meet(wire.Target{Epoch: 1, Number: 4, Regions: b})
		require.ErrorIs(t, err, wire.Malformed)
	}
}

// A target through which a READ has failed is not used for a while, and given up when all READs have failed for
// long: not if one has succeeded in between.
func TestTargetThatIsSilent(t *testing.T) {
	var w way
	now := time.Now().UnixNano()
	require.True(t, w.open(now))
	require.False(t, w.failed(now))
	require.False(t, w.open(now+int64(blockedFor)-1))
	require.True(t, w.open(now+int64(blockedFor)))
	require.False(t, w.failed(now+int64(silentFor)-1))
	w.replied()
	require.False(t, w.failed(now+int64(silentFor)))
	require.False(t, w.failed(now+2*int64(silentFor)-1))
	require.True(t, w.failed(now+2*int64(silentFor)))
}

// A READ counts when it is over, also after its caller has gone.
func TestTargetOfACallThatWasLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var w way
	require.False(t, w.failed(1))
	left, end := operr.NewInFlight(ctx.Err())
	require.ErrorIs(t, new(through).over(ctx, &w, left), context.Canceled)
	require.EqualValues(t, 1, w.silent.Load())
	end(nil)
	require.Eventually(t, func() bool { return w.silent.Load() == 0 }, time.Minute, time.Millisecond)
}

// The ways to connect: the one that was asked for first, and TCP last, unless that is refused.
func TestWays(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want []Transport
	}{
		{Config{}, []Transport{RDMA, TCP}},
		{Config{RequireRDMA: true}, []Transport{RDMA}},
		{Config{DC: &dc.Initiator{}}, []Transport{DC, RDMA, TCP}},
		{Config{DC: &dc.Initiator{}, RequireRDMA: true}, []Transport{DC, RDMA}},
	} {
		require.Equal(t, c.want, (&Client{cfg: c.cfg}).ways())
	}
}
