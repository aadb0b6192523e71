package cache

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
)

const (
	multiKeys   = 32
	multiRounds = 20
)

// together returns the keys in a second that GetMulti reads.
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

// oneByOne returns the same for a call for each key.
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

// storeTogether returns the records in a second that SetMulti stores.
func (s *served) storeTogether(ctx context.Context) (float64, error) {
	puts := make([]cache.Entry, multiKeys)
	for i := range puts {
		puts[i] = cache.Entry{Key: key(3_000_000 + i), Item: cache.Item{Value: make([]byte, 64)}}
	}
	var errs []error
	us, err := rig.Timed(multiRounds, func() error {
		errs = s.client.SetMulti(ctx, puts, errs)
		return errors.Join(errs...)
	})
	return multiKeys / us * 1e6, err
}

// storeOneByOne returns the same for a call for each record.
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

// bareMulti is how far lists of READs get without a cache: perftest's, of as many READs as GetMulti has
// keys, beside its READs one after the other. It bounds what multiget32 can be on the device.
func bareMulti() harness.Benchmark {
	keys := strconv.Itoa(multiKeys)
	each := strconv.Itoa(header + keySize + 64)
	lists := rig.Perftest("ib_read_bw", rig.BWRate, []string{"-s", each, "-n", "960", "-l", keys, "-t", keys, "-Q", keys})
	single := rig.Perftest("ib_read_lat", rig.LatTypical, []string{"-s", each, "-n", "500"})
	per := func(p harness.Pass, f func(v float64) float64) harness.Pass {
		return harness.One(func(ctx context.Context) (float64, error) {
			v, err := p(ctx)
			if err != nil {
				return 0, err
			}
			return f(v[0]), nil
		})
	}
	return harness.Compare(harness.Figure{Name: "multiget32_bare", Unit: "key/s"}, instructions,
		per(lists, func(millions float64) float64 { return millions * 1e6 }),
		harness.Side{Name: "ib_read_lat", Run: per(single, func(us float64) float64 { return 1e6 / us })})
}
