package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// In each moment between two stores of the server two READs follow each other: the first one by the map's bucket,
// the second by an entry that a client has had for long. What the first saw the second does not go back behind.
func TestSecondReadIsNotOlder(t *testing.T) {
	a, err := arena.New(simPage)
	require.NoError(t, err)
	region := make([]byte, 8*simPage)
	_, err = a.Add(region)
	require.NoError(t, err)
	var table []byte
	s, err := New(Config{Epoch: 7, Secret: wire.Secret{1, 2}, Arena: a, AllocTable: func(n int) ([]byte, wire.Where) {
		table = make([]byte, n)
		return table, wire.Where{Key: 1}
	}, FreeTable: func([]byte) {}})
	require.NoError(t, err)
	s.Attach(1, 1)
	key := []byte("key")
	f := s.cfg.Secret.Fingerprint(key)
	var old wire.Entry // of the client with an old map
	const gone = ^uint64(0)
	// get is the version that a READ chain from an entry sees: gone for a tombstone that leads nowhere.
	get := func(e wire.Entry) uint64 {
		for {
			b := a.Bytes(e.Place)
			r, err := wire.Validate(b, &e, key)
			if err == nil {
				return r.Version
			}
			next, ok := wire.Forwarded(b, &e)
			if !ok {
				return gone
			}
			e = next
		}
	}
	moments, bad := 0, 0
	s.between = func() {
		if old.Version == 0 {
			return
		}
		moments++
		_, depth := s.table.Where()
		i, j := wire.Buckets(f, depth)
		var found []wire.Entry
		for _, n := range []uint32{i, j} {
			found, err = wire.ReadBucket(table[int(n)*wire.BucketSize:], depth, n, 7, f, found)
			require.NoError(t, err)
		}
		first := gone
		absent := len(found) == 0 // which is a result too
		if !absent {
			first = get(found[0])
		}
		second := get(old)
		switch {
		case absent && second != gone:
			bad++
			t.Logf("a bucket says that the key is gone, and then version %d is READ", second)
		case first != gone && second != gone && second < first:
			bad++
			t.Logf("version %d is READ, and then version %d", first, second)
		}
	}
	move := wire.Request{} // no request: the record is moved
	for _, q := range []wire.Request{set("key", "one"), set("key", "two"), move, {Request: kv.Request{Op: kv.OpGet, Want: kv.WantTouch, Expiry: 1000, Key: key}}, {Request: kv.Request{Op: kv.OpAppend, Key: key, Value: []byte("x")}}, {Request: kv.Request{Op: kv.OpDelete, Key: key}}, set("key", "three"), {Request: kv.Request{Op: kv.OpFlush}}} {
		if len(q.Key) == 0 && q.Op != kv.OpFlush {
			s.move(s.table.Candidates(f, nil)[0].Item)
		} else {
			do(s, 1, q)
		}
		s.found = s.table.Candidates(f, s.found[:0])
		if len(s.found) > 0 {
			old = s.found[0]
		}
	}
	require.Greater(t, moments, 5)
	require.Zero(t, bad)
}
