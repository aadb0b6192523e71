package cache

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reserving is a shelf with reservations, for loaders of several programs.
type reserving struct {
	*shelf
	last    uint64
	numbers map[string]uint64
	until   map[string]time.Time
	failure error // of reserve
}

func newReserving() *reserving {
	return &reserving{shelf: shelved(), numbers: map[string]uint64{}, until: map[string]time.Time{}}
}

// number returns that of a key's reservation. mu must be held.
func (s *reserving) number(key []byte) uint64 {
	if !time.Now().Before(s.until[string(key)]) {
		return 0
	}
	return s.numbers[string(key)]
}

func (s *reserving) reserve(_ context.Context, key []byte, d time.Duration) (Item, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it, ok := s.items[string(key)]; ok || s.failure != nil {
		return it, 0, s.failure
	}
	if s.number(key) != 0 {
		return Item{}, 0, opError("reserve", key, errReserved)
	}
	s.last++
	s.numbers[string(key)], s.until[string(key)] = s.last, time.Now().Add(d)
	return Item{}, s.last, nil
}

func (s *reserving) release(_ context.Context, key []byte, number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers[string(key)] == number {
		delete(s.numbers, string(key))
	}
	return nil
}

func (s *reserving) CompareAndSwap(_ context.Context, key []byte, it Item, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.items[string(key)]; ok {
		return ErrChanged
	}
	if s.number(key) != it.CAS {
		return ErrNotFound
	}
	it.CAS = 0
	s.items[string(key)] = it
	delete(s.numbers, string(key))
	return nil
}

// slow is a LoadFunc that takes a while, and counts.
func slow(took time.Duration, value string, loads *atomic.Int32) LoadFunc {
	return func(context.Context) (Item, error) {
		loads.Add(1)
		time.Sleep(took)
		return Item{Value: []byte(value)}, nil
	}
}

// One of many loaders loads a key that all miss, and the others wait for it.
func TestOneLoaderOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReserving()
		var loads atomic.Int32
		var waited, loaded uint64
		var all sync.WaitGroup
		const n = 20
		var loaders [n]*Loader
		for i := range loaders {
			loaders[i] = NewLoader(s, LoaderConfig{})
			all.Go(func() {
				begun := time.Now()
				it, err := loaders[i].Load(t.Context(), []byte("key"), 0, slow(500*time.Millisecond, "value", &loads))
				assert.NoError(t, err)
				assert.Equal(t, "value", string(it.Value))
				assert.Less(t, time.Since(begun), 500*time.Millisecond+lastLook+time.Millisecond)
			})
		}
		all.Wait()
		require.EqualValues(t, 1, loads.Load())
		for _, l := range loaders {
			waited, loaded = waited+l.Stats().Waited, loaded+l.Stats().Loads
		}
		require.Equal(t, [2]uint64{n - 1, 1}, [2]uint64{waited, loaded})
		require.Empty(t, s.numbers)
	})
}

// When a loader dies another one loads after LoadTime. No loader waits for longer than twice that.
func TestLoaderDies(t *testing.T) {
	for reserved, want := range map[time.Duration]int32{time.Second: 1, time.Hour: 19} {
		synctest.Test(t, func(t *testing.T) {
			s := newReserving()
			var loads atomic.Int32
			var all sync.WaitGroup
			_, _, err := s.reserve(t.Context(), []byte("key"), reserved)
			require.NoError(t, err)
			begun := time.Now()
			for range 19 {
				all.Go(func() {
					l := NewLoader(s, LoaderConfig{})
					it, err := l.Load(t.Context(), []byte("key"), 0, func(ctx context.Context) (Item, error) {
						assert.GreaterOrEqual(t, time.Since(begun), time.Second)
						return slow(100*time.Millisecond, "value", &loads)(ctx)
					})
					assert.NoError(t, err)
					assert.Equal(t, "value", string(it.Value))
				})
			}
			all.Wait()
			require.Equal(t, want, loads.Load())
			require.Less(t, time.Since(begun), 2*time.Second+2*lastLook+100*time.Millisecond, "none waits longer")
		})
	}
}

// No LoadTime is too long: twice of it does not overflow to a time that is over already.
func TestLoaderWaitsForAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReserving()
		_, _, err := s.reserve(t.Context(), []byte("key"), time.Hour)
		require.NoError(t, err)
		begun := time.Now()
		l := NewLoader(s, LoaderConfig{LoadTime: math.MaxInt64})
		_, err = l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) { return Item{Value: []byte("value")}, nil })
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), time.Hour)
	})
}

// A load that fails, panics or is given up lets the next loader begin at once.
func TestFailedLoadIsReleased(t *testing.T) {
	for name, load := range map[string]LoadFunc{
		"error":    func(context.Context) (Item, error) { return Item{}, errSource },
		"panic":    func(context.Context) (Item, error) { panic("of the program") },
		"given up": func(ctx context.Context) (Item, error) { <-ctx.Done(); return Item{}, ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newReserving()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := NewLoader(s, LoaderConfig{}).Load(ctx, []byte("key"), 0, load)
			require.Error(t, err, name)
			synctest.Wait()
			require.Empty(t, s.numbers, name)
		})
	}
}

// An item is not stored that was loaded before its key was deleted. One whose load took longer than the reservation is
// stored all the same, unless there is another one.
func TestReservationIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newReserving(), (*Loader)(nil)
		l = NewLoader(s, LoaderConfig{})
		it, err := l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) {
			assert.NoError(t, s.release(t.Context(), []byte("key"), s.last)) // as a deletion does
			return Item{Value: []byte("old")}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "old", string(it.Value))
		require.Empty(t, s.items)
		require.Equal(t, LoaderStats{Loads: 1, Unstored: 1}, l.Stats())

		var loads atomic.Int32
		_, err = l.Load(t.Context(), []byte("key"), 0, slow(2*time.Second, "late", &loads))
		require.NoError(t, err)
		require.Equal(t, "late", string(s.items["key"].Value))

		it, err = l.Load(t.Context(), []byte("other"), 0, func(context.Context) (Item, error) {
			s.items["other"] = Item{Value: []byte("newer")}
			return Item{Value: []byte("older")}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "newer", string(it.Value))
		require.EqualValues(t, 1, l.Stats().Unstored)
	})
}

// Where no key can be reserved each loader loads for itself: the server has no memory, its reply was lost, or the program
// wants none.
func TestLoadWithoutReservation(t *testing.T) {
	for name, c := range map[string]struct {
		failure  error
		loadTime time.Duration
	}{"no memory": {opError("reserve", nil, ErrNoMemory), 0}, "no reply": {opError("reserve", nil, ErrOutcomeUnknown), 0}, "not wanted": {errSource, -1}} {
		synctest.Test(t, func(t *testing.T) {
			s := newReserving()
			s.failure = c.failure
			l := NewLoader(s, LoaderConfig{LoadTime: c.loadTime})
			it, err := l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) { return Item{Value: []byte("value")}, nil })
			require.NoError(t, err, name)
			require.Equal(t, "value", string(it.Value), name)
			require.Equal(t, "value", string(s.items["key"].Value), name)
			require.Equal(t, LoaderStats{Loads: 1}, l.Stats(), name)
		})
	}
	s := newReserving()
	s.failure = ErrDenied
	l := NewLoader(s, LoaderConfig{})
	_, err := l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) { return Item{}, errSource })
	require.ErrorIs(t, err, ErrDenied)
	require.Zero(t, l.Stats().Loads)
}
