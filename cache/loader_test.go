package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shelf is a cache in a map, as far as loaders need one: they are tested in virtual time,
// which devices have not. TestLoader has the real one.
type shelf struct {
	Cache
	mu      sync.Mutex
	items   map[string]Item
	gets    int
	missing func(gets int) // called before a miss is returned
	add     error
}

func (s *shelf) Get(_ context.Context, key []byte) (Item, error) {
	s.mu.Lock()
	s.gets++
	it, ok := s.items[string(key)]
	missing, gets := s.missing, s.gets
	s.mu.Unlock()
	if ok {
		return it, nil
	}
	if missing != nil {
		missing(gets)
	}
	return Item{}, opError("get", key, ErrNotFound)
}

func (s *shelf) Add(_ context.Context, key []byte, it Item, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.items[string(key)]; ok {
		return ErrNotStored
	}
	if s.add == nil {
		s.items[string(key)] = it
	}
	return s.add
}

func shelved() *shelf { return &shelf{items: map[string]Item{}} }

var errSource = errors.New("the source is down")

// Callers that miss while a load is under way wait for it, and each gets a value of its own.
func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoader(shelved(), LoaderConfig{})
		var loads atomic.Int32
		load := func(context.Context) (Item, error) {
			loads.Add(1)
			time.Sleep(time.Second)
			return Item{Value: []byte("value"), Flags: 3, CAS: 9}, nil
		}
		const n = 50
		var items [n]Item
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				var err error
				items[i], err = l.Load(t.Context(), []byte("key"), time.Hour, load)
				assert.NoError(t, err)
			})
		}
		all.Wait()
		require.Equal(t, int32(1), loads.Load())
		for i := range items {
			require.Equal(t, Item{Value: []byte("value"), Flags: 3}, items[i])
			items[i].Value[0] = byte(i) // is this caller's alone
		}
		it, err := l.Load(t.Context(), []byte("key"), time.Hour, load)
		require.NoError(t, err)
		require.Equal(t, "value", string(it.Value))
		require.Equal(t, LoaderStats{Hits: 1, Shared: n - 1, Loads: 1}, l.Stats())
		require.Empty(t, l.flights)
	})
}

// A caller that goes leaves the load to the others; the last one takes it along.
func TestLoadOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type kind struct{}
		l := NewLoader(shelved(), LoaderConfig{ErrorTTL: time.Hour})
		ended := make(chan error, 10)
		load := func(ctx context.Context) (Item, error) {
			select {
			case <-time.After(time.Minute):
				ended <- nil
				return Item{Value: []byte(fmt.Sprint(ctx.Value(kind{})))}, nil
			case <-ctx.Done():
				ended <- ctx.Err()
				return Item{}, ctx.Err()
			}
		}
		first, cancelFirst := context.WithTimeout(context.WithValue(t.Context(), kind{}, "first"), 10*time.Second)
		defer cancelFirst()
		second, cancelSecond := context.WithCancel(context.WithValue(t.Context(), kind{}, "second"))
		var all sync.WaitGroup
		all.Go(func() {
			begin := time.Now()
			_, err := l.Load(first, []byte("key"), 0, load)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 10*time.Second, time.Since(begin), "it waits no longer than it wants")
		})
		synctest.Wait()
		all.Go(func() {
			it, err := l.Load(second, []byte("key"), 0, load)
			assert.NoError(t, err)
			assert.Equal(t, "first", string(it.Value))
		})
		all.Wait()
		require.NoError(t, <-ended)
		require.Equal(t, uint64(1), l.Stats().Loads)

		all.Go(func() {
			_, err := l.Load(second, []byte("other"), 0, load)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		cancelSecond()
		all.Wait()
		require.ErrorIs(t, <-ended, context.Canceled, "nobody waits for it")
		synctest.Wait()

		// That is no error of the key's. One that comes while an ended load still runs has
		// a load of its own.
		it, err := l.Load(t.Context(), []byte("other"), 0, load)
		require.NoError(t, err)
		require.Equal(t, "<nil>", string(it.Value))
		slow, cancelSlow := context.WithTimeout(t.Context(), time.Second)
		defer cancelSlow()
		stubborn := func(context.Context) (Item, error) { time.Sleep(time.Minute); return Item{}, errSource }
		_, err = l.Load(slow, []byte("third"), 0, stubborn)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		it, err = l.Load(t.Context(), []byte("third"), 0, func(context.Context) (Item, error) { return Item{Flags: 3}, nil })
		require.NoError(t, err)
		require.Equal(t, uint32(3), it.Flags)
		time.Sleep(time.Hour)
		require.Empty(t, l.flights)
		require.Empty(t, l.failed)
	})
}

// All waiting callers get the error of a load, which is remembered only if that was asked for.
func TestErrorsOfLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads int
		load := func(context.Context) (Item, error) { loads++; return Item{}, errSource }
		l := NewLoader(shelved(), LoaderConfig{})
		for i := range 3 {
			_, err := l.Load(t.Context(), []byte("key"), 0, load)
			require.ErrorIs(t, err, errSource)
			require.Equal(t, i+1, loads)
		}
		require.Equal(t, LoaderStats{Loads: 3, Failed: 3}, l.Stats())

		l, loads = NewLoader(shelved(), LoaderConfig{ErrorTTL: time.Second, MaxErrors: 10}), 0
		for range 3 {
			_, err := l.Load(t.Context(), []byte("key"), 0, load)
			require.ErrorIs(t, err, errSource)
			time.Sleep(300 * time.Millisecond)
		}
		require.Equal(t, 1, loads)
		time.Sleep(100 * time.Millisecond)
		_, err := l.Load(t.Context(), []byte("key"), 0, load)
		require.ErrorIs(t, err, errSource)
		require.Equal(t, 2, loads)
		for i := range 50 {
			_, err := l.Load(t.Context(), fmt.Append(nil, i), 0, load)
			require.ErrorIs(t, err, errSource)
			require.LessOrEqual(t, len(l.failed), 10)
		}
	})
}

// What the cache has by the time is not loaded again, nor overwritten.
func TestLoadsThatComeLate(t *testing.T) {
	s := shelved()
	l := NewLoader(s, LoaderConfig{})
	never := func(context.Context) (Item, error) { t.Error("loaded"); return Item{}, nil }
	s.missing = func(int) { s.items["key"] = Item{Value: []byte("stored meanwhile")} }
	it, err := l.Load(t.Context(), []byte("key"), 0, never)
	require.NoError(t, err)
	require.Equal(t, "stored meanwhile", string(it.Value))

	s.missing = nil
	it, err = l.Load(t.Context(), []byte("other"), 0, func(context.Context) (Item, error) {
		s.items["other"] = Item{Value: []byte("newer")}
		return Item{Value: []byte("older")}, nil
	})
	require.NoError(t, err)
	require.Equal(t, "newer", string(it.Value))
	require.Equal(t, "newer", string(s.items["other"].Value))

	s.add = ErrNoMemory
	it, err = l.Load(t.Context(), []byte("third"), 0, func(context.Context) (Item, error) { return Item{Flags: 1}, nil })
	require.NoError(t, err, "the item is there all the same")
	require.Equal(t, uint32(1), it.Flags)
	require.Equal(t, uint64(1), l.Stats().Unstored)
}

// A load that panics or ends its goroutine, as the failing assertions of tests do, is an error
// for all that wait for it, and the next miss loads again.
func TestLoadThatDoesNotReturn(t *testing.T) {
	for want, end := range map[string]func(){"cache: the LoadFunc panicked: of the program\n": func() { panic("of the program") }, "cache: the LoadFunc called runtime.Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			l := NewLoader(&shelf{items: map[string]Item{}}, LoaderConfig{})
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					_, err := l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) {
						time.Sleep(time.Second)
						end()
						return Item{}, nil
					})
					assert.ErrorContains(t, err, want)
				})
			}
			all.Wait()
			require.EqualValues(t, 1, l.Stats().Failed)
			it, err := l.Load(t.Context(), []byte("key"), 0, func(context.Context) (Item, error) { return Item{Value: []byte("value")}, nil })
			require.NoError(t, err)
			require.Equal(t, "value", string(it.Value))
		})
	}
}
