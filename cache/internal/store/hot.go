package store

import (
	"bytes"

	"github.com/goverbs/goverbs/cache/internal/hot"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// sampleCalls is how many gets by RPC stand for one that is counted. Clients tell of one READ
// in as many, unless they were told otherwise.
const sampleCalls = 16

// called counts a get by RPC, at random: each n-th could be always the same key's.
func (s *Store) called(fingerprint uint64) {
	s.calls = s.calls*6364136223846793005 + 1442695040888963407
	if s.calls>>33%sampleCalls == 0 {
		s.hot.Access(fingerprint)
	}
}

// HotKey is a key that is asked for often.
type HotKey struct {
	Key   []byte
	Share float64 // of all gets that found something, of late
}

// Hot returns up to n keys that have the most gets, by a sample of READs and RPCs. Keys without a
// record are left out.
func (s *Store) Hot(n int) []HotKey {
	var room [8]hot.Count
	top, total := s.hot.Top(n, room[:0])
	var keys []HotKey
	for _, c := range top {
		s.found = s.table.Candidates(c.Fingerprint, s.found[:0])
		if len(s.found) == 0 || s.isFlushed(s.found[0].Version) {
			continue
		}
		r := wire.PeekRecord(s.arena.Bytes(s.found[0].Place))
		keys = append(keys, HotKey{bytes.Clone(r.Key), float64(c.Accesses-c.Surplus) / float64(total)})
	}
	return keys
}
