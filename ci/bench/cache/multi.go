package cache

import (
	"context"
	"slices"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
)

const (
	multiKeys   = 32
	multiRounds = 20
)

// together answers how many keys in a second GetMulti reads.
func (s *served) together(ctx context.Context) (float64, error) {
	keys := slices.Repeat([][]byte{key(64)}, multiKeys)
	var results []cache.Result
	us, err := rig.Timed(multiRounds, func() error {
		results = s.client.GetMulti(ctx, keys, results)
		for i := range results {
			if results[i].Err != nil {
				return results[i].Err
			}
		}
		return nil
	})
	return multiKeys / us * 1e6, err
}

// oneByOne answers the same for a call for each key.
func (s *served) oneByOne(ctx context.Context) (float64, error) {
	k, dst := key(64), make([]byte, 64)
	us, err := rig.Timed(multiRounds, func() error {
		for range multiKeys {
			if _, err := s.client.GetInto(ctx, k, dst); err != nil {
				return err
			}
		}
		return nil
	})
	return multiKeys / us * 1e6, err
}
