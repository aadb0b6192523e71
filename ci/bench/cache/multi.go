package cache

import (
	"context"
	"errors"
	"slices"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
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

// storeTogether answers how many records in a second SetMulti stores.
func (s *served) storeTogether(ctx context.Context) (float64, error) {
	puts := make([]cache.Put, multiKeys)
	for i := range puts {
		puts[i] = cache.Put{Key: key(3_000_000 + i), Item: cache.Item{Value: make([]byte, 64)}}
	}
	var errs []error
	us, err := rig.Timed(multiRounds, func() error {
		errs = s.client.SetMulti(ctx, puts, errs)
		return errors.Join(errs...)
	})
	return multiKeys / us * 1e6, err
}

// storeOneByOne answers the same for a call for each record.
func (s *served) storeOneByOne(ctx context.Context) (float64, error) {
	value := make([]byte, 64)
	us, err := rig.Timed(multiRounds, func() error {
		for i := range multiKeys {
			if err := s.client.Set(ctx, key(3_000_000+i), cache.Item{Value: value}, 0); err != nil {
				return err
			}
		}
		return nil
	})
	return multiKeys / us * 1e6, err
}

// setMulti compares one call for many records with a call for each. Its server is one of its own:
// others count the entries of theirs.
func setMulti() harness.Benchmark {
	ours := rig.Lazy(newServed)
	return harness.Compare(harness.Figure{Name: "setmulti32", Unit: "key/s"}, instructions, ours.Pass((*served).storeTogether),
		harness.Side{Name: "single Sets", Run: ours.Pass((*served).storeOneByOne)})
}
