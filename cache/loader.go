package cache

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// LoadFunc makes the item of a key that is not in the cache. Its context ends when nobody
// waits for the item any more, and has the values of the first caller's context.
type LoadFunc func(ctx context.Context) (Item, error)

// LoaderConfig configures a loader. The zero value is fine.
type LoaderConfig struct {
	// ErrorTTL is how long this loader returns the error of a LoadFunc to all callers
	// that ask for the key, before it loads the key again; 0 means not at all.
	ErrorTTL time.Duration
	// MaxErrors is how many errors are kept; 0 means 1024. Further ones are dropped
	// early.
	MaxErrors int
}

// Loader reads through a cache: it loads and stores what is missing. Any number of
// goroutines that miss the same key at the same time wait for one load. It is safe for
// any number of goroutines.
//
// That holds within one loader: programs, or loaders, that miss at the same time each
// load for themselves, and the first one to store its item wins.
//
// A loader stores with [Cache.Add]: it never overwrites what was stored while it loaded,
// but returns that. It does not know of a deletion meanwhile, so an item loaded before
// the deletion may be stored after it. When the source has changed, a program should
// therefore store the new item instead of deleting the old one, or let the old one
// expire.
type Loader struct {
	cache Cache
	cfg   LoaderConfig
	group singleflight.Group
	count struct{ hits, shared, loads, failed, unstored atomic.Uint64 }

	mu      sync.Mutex // of what follows
	flights map[string]*flight
	failed  map[string]failedLoad
}

// flight is a load that some wait for. While it is among the flights of the loader, it is
// among those of the group.
type flight struct {
	ctx     context.Context // of the load
	cancel  context.CancelFunc
	waiters int
}

type failedLoad struct {
	err   error
	until time.Time
}

// NewLoader makes a loader over a cache. It does not close the cache.
func NewLoader(c Cache, cfg LoaderConfig) *Loader {
	if cfg.MaxErrors <= 0 {
		cfg.MaxErrors = 1024
	}
	return &Loader{cache: c, cfg: cfg, flights: map[string]*flight{}, failed: map[string]failedLoad{}}
}

// Load returns the record of a key. Without one it calls load to make the item, stores
// the item for ttl (0 means for ever) and returns it, without a CAS number. The value
// belongs to the caller alone.
//
// When ctx ends Load ends; a load that others wait for goes on. All waiting callers get
// the error of load, as it is. An item that cannot be stored is still returned, and
// counted. After an error of the cache nothing is loaded, and Load returns that error; a
// [Cluster] with MissWhenDown has no such error for servers that are down. A load that
// panics ends the program, as it runs in a goroutine of its own; one that calls
// [runtime.Goexit] is an error.
func (l *Loader) Load(ctx context.Context, key []byte, ttl time.Duration, load LoadFunc) (Item, error) {
	it, err := l.cache.Get(ctx, key)
	if err == nil {
		l.count.hits.Add(1)
	}
	if !errors.Is(err, ErrNotFound) {
		return it, err
	}
	k := string(key)
	l.mu.Lock()
	if err := l.remembered(k); err != nil {
		l.mu.Unlock()
		return Item{}, err
	}
	f := l.flights[k]
	if f == nil {
		f = &flight{}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		l.flights[k] = f
	} else {
		l.count.shared.Add(1)
	}
	f.waiters++
	landed := l.group.DoChan(k, func() (any, error) { return l.fly(f, k, ttl, load) })
	l.mu.Unlock()
	select {
	case r := <-landed:
		l.leave(f, k)
		if r.Err != nil {
			return Item{}, r.Err
		}
		it := r.Val.(Item)
		it.Value = bytes.Clone(it.Value)
		return it, nil
	case <-ctx.Done():
		l.leave(f, k)
		return Item{}, opError("load", key, ctx.Err())
	}
}

// leave is a waiter's end. The last one ends the load, if it is still under way.
func (l *Loader) leave(f *flight, k string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		l.end(f, k)
	}
}

// end has the next one who misses the key begin a new flight. The mutex is held.
func (l *Loader) end(f *flight, k string) {
	f.cancel()
	if l.flights[k] == f {
		delete(l.flights, k)
		l.group.Forget(k)
	}
}

// fly loads the item of a key and stores it.
func (l *Loader) fly(f *flight, k string, ttl time.Duration, load LoadFunc) (it Item, err error) {
	failed := false
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if failed && f.ctx.Err() == nil {
			l.remember(k, err)
		}
		l.end(f, k)
	}()
	// The flight before this one may have stored the item since its absence was seen.
	if it, err = l.cache.Get(f.ctx, []byte(k)); !errors.Is(err, ErrNotFound) {
		return it, err
	}
	l.count.loads.Add(1)
	if it, err = load.call(f.ctx); err != nil {
		failed = true
		l.count.failed.Add(1)
		return Item{}, err
	}
	it.CAS = 0
	switch err := l.cache.Add(f.ctx, []byte(k), it, ttl); {
	case errors.Is(err, ErrNotStored): // somebody else was first
		if there, err := l.cache.Get(f.ctx, []byte(k)); err == nil {
			return there, nil
		}
	case err != nil:
		l.count.unstored.Add(1)
	}
	return it, nil
}

// errNoReturn is the error of a LoadFunc that ends its goroutine.
var errNoReturn = errors.New("cache: the LoadFunc called runtime.Goexit")

// call calls load in a goroutine of its own, which load may end.
func (load LoadFunc) call(ctx context.Context) (it Item, err error) {
	done := make(chan struct{})
	err = errNoReturn
	go func() {
		defer close(done)
		it, err = load(ctx)
	}()
	<-done
	return it, err
}

// remember keeps the error of a load. The mutex is held.
func (l *Loader) remember(k string, err error) {
	if l.cfg.ErrorTTL <= 0 {
		return
	}
	now := time.Now()
	if len(l.failed) >= l.cfg.MaxErrors {
		for other, f := range l.failed {
			if !now.Before(f.until) {
				delete(l.failed, other)
			}
		}
	}
	for other := range l.failed {
		if len(l.failed) < l.cfg.MaxErrors {
			break
		}
		delete(l.failed, other)
	}
	l.failed[k] = failedLoad{err, now.Add(l.cfg.ErrorTTL)}
}

// remembered is the error of a load not long ago. The mutex is held.
func (l *Loader) remembered(k string) error {
	f, ok := l.failed[k]
	switch {
	case !ok:
		return nil
	case time.Now().Before(f.until):
		return f.err
	}
	delete(l.failed, k)
	return nil
}

// LoaderStats are counters.
type LoaderStats struct {
	Hits     uint64 // found in the cache at once
	Shared   uint64 // waited for a load that was under way
	Loads    uint64 // calls of a LoadFunc
	Failed   uint64 // of those, with an error
	Unstored uint64 // loaded, but not stored for an error of the cache
}

// Stats returns what the loader did.
func (l *Loader) Stats() LoaderStats {
	n := &l.count
	return LoaderStats{Hits: n.hits.Load(), Shared: n.shared.Load(), Loads: n.loads.Load(), Failed: n.failed.Load(), Unstored: n.unstored.Load()}
}
