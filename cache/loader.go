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

// LoadFunc makes the item of a key that is not in the cache, from wherever it comes. Its
// context ends when nobody waits for the item any more; it has the values of the context
// of whoever came first.
type LoadFunc func(ctx context.Context) (Item, error)

// LoaderConfig is what a loader is made of. The zero value is fine.
type LoaderConfig struct {
	// ErrorTTL is how long an error of a LoadFunc is answered to all who ask for the key,
	// by this loader alone, before the key is loaded again; 0 means not at all.
	ErrorTTL time.Duration
	// MaxErrors is how many errors are remembered; 0 means 1024. Others are forgotten
	// early.
	MaxErrors int
}

// Loader reads through a cache: what is not there is loaded, and stored. Any number of
// goroutines that miss the same key at the same time wait for one load. It is safe for
// any number of goroutines.
//
// That holds within the loader: programs, or loaders, that miss at the same time load
// each for itself, and the first one to store its item wins.
//
// A loader stores with [Cache.Add]: it never overwrites what was stored while it loaded,
// and then answers that. But it does not know of a deletion meanwhile, so what it loaded
// before may be stored after it. Who deletes because the source has changed should store
// the new item instead, or have the old one expire.
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

// NewLoader makes a loader over a cache, which remains its owner's to close.
func NewLoader(c Cache, cfg LoaderConfig) *Loader {
	if cfg.MaxErrors <= 0 {
		cfg.MaxErrors = 1024
	}
	return &Loader{cache: c, cfg: cfg, flights: map[string]*flight{}, failed: map[string]failedLoad{}}
}

// Load answers the record of a key. Without one it has load make the item, stores that
// for ttl (0 means for ever) and answers it, without a CAS number. The value is the
// caller's alone.
//
// When ctx ends Load ends; a load that others wait for goes on. Errors of load are
// answered to all who wait, as they are. An item that cannot be stored is answered all
// the same, and counted. Errors of the cache are answered, and nothing is loaded: a
// [Cluster] with MissWhenDown has none for servers that are down. A load that panics ends
// the program, as it runs in a goroutine of its own.
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
	if it, err = load(f.ctx); err != nil {
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

// Stats tells what the loader did.
func (l *Loader) Stats() LoaderStats {
	n := &l.count
	return LoaderStats{Hits: n.hits.Load(), Shared: n.shared.Load(), Loads: n.loads.Load(), Failed: n.failed.Load(), Unstored: n.unstored.Load()}
}
