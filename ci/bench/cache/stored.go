package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// storedMemory is the memory of a server that is full, and churn how often as many records as
// it holds are stored, over and over, among twice as many keys.
const (
	storedMemory = 16 << 20
	storedValue  = 1024
	churn        = 4
)

// stored returns how much memory a server has for each byte of keys and values that it keeps when
// it is full, after churn. A day of it, of other lengths too and in virtual time, is a test of
// the store's.
func stored(ctx context.Context) (_ float64, err error) {
	_, far, err := rig.Endpoints()
	if err != nil {
		return 0, err
	}
	s, err := server.Listen(ctx, net.JoinHostPort(far.Addr.String(), "0"), server.Config{Memory: storedMemory})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	const most = storedMemory / storedValue
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, storedValue)
	for range churn * most {
		q := kv.Request{Op: kv.OpSet, Key: key(rng.IntN(2 * most)), Value: value}
		if rng.IntN(4) == 0 {
			q.Expiry = int64(time.Hour / time.Millisecond)
		}
		if _, err := s.Do(ctx, &q); err != nil {
			return 0, err
		}
	}
	st := s.Stats()
	if st.Evicted == 0 {
		return 0, fmt.Errorf("it is not full: %+v", st)
	}
	return float64(st.Memory) / float64(st.Items*(storedValue+keySize)), nil
}

func storedMemoryRow() harness.Benchmark {
	f := harness.Figure{Name: "arena_bytes_per_stored_byte", Unit: "bytes", Target: measure.AtMost(1.25)}
	return harness.Plain(f, instructions, harness.One(stored))
}
