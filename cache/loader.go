package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
)

// LoadFunc makes the item of a key that is not in the cache. The item's Value belongs to the
// loader once it is returned: the program must not change it. The context of a LoadFunc
// ends when no caller waits for the item any more, and has the values of the first caller's context.
type LoadFunc func(ctx context.Context) (Item, error)

// LoaderConfig configures a loader. The zero value is fine.
type LoaderConfig struct {
	// ErrorTTL is how long this loader returns the error of a LoadFunc to all callers
	// that ask for the key, before it loads the key again; 0 means not at all.
	ErrorTTL time.Duration
	// MaxErrors is how many errors are kept; 0 means 1024. Further ones are dropped
	// early.
	MaxErrors int
	// LoadTime is how long other loaders, in other programs too, leave the load of a key to this
	// one. Then one of them loads it: this one may have died. 0 means a second, and below 0 this loader neither waits
	// for others nor do they wait for it.
	LoadTime time.Duration
}

// Loader reads through a cache: it loads and stores what is missing. Any number of
// goroutines that miss the same key at the same time wait for one load. It is safe for
// any number of goroutines.
//
// Loaders of other programs wait too, if the cache is a [Client] or a [Cluster]: a loader reserves the key at its
// server before it loads, for LoadTime in [LoaderConfig]. One that finds the key reserved waits until it finds the
// item, or can reserve the key itself, but for twice its LoadTime at most: then it loads without that. So
// a load that takes longer than LoadTime is begun once more, and after each LoadTime again. To
// reads and changes of clients a key that is only reserved has no record; programs that speak memcached's protocol
// find an empty one.
//
// A loader never overwrites what was stored while it loaded, but returns that. If the key was deleted meanwhile, the
// item is returned and not stored, since it may be older than the deletion; so it is if the reservation
// was lost, with its server for instance. A load that takes longer than LoadTime does not know of a deletion. When the
// source has changed, a program should therefore store the new item instead of deleting the old one, or let the old one
// expire.
type Loader struct {
	cache Cache
	cfg   LoaderConfig
	count struct{ hits, shared, waited, loads, failed, unstored atomic.Uint64 }

	mu      sync.Mutex // of what follows
	flights map[string]*flight
	failed  map[string]failedLoad
}

// flight is a load under way.
type flight struct {
	ctx     context.Context // of the load
	cancel  context.CancelFunc
	waiters int           // under the loader's mutex
	landed  chan struct{} // closed when item and err are set
	item    Item
	err     error
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
	if cfg.LoadTime == 0 {
		cfg.LoadTime = time.Second
	}
	return &Loader{cache: c, cfg: cfg, flights: map[string]*flight{}, failed: map[string]failedLoad{}}
}

// Load returns the record of a key. Without one it calls load to make the item, stores
// the item for ttl (0 means for ever) and returns it, without a CAS number. The value
// is a copy that belongs to this caller alone, also where callers share one load.
//
// When ctx ends Load ends; a load that others wait for goes on. All waiting callers get
// the error of load, as it is. An item that cannot be stored is still returned, and
// counted. After an error of the cache nothing is loaded, and Load returns that error; a
// [Cluster] with MissWhenDown has no such error for servers that are down. A load that
// panics or calls [runtime.Goexit] is an error.
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
		f = &flight{landed: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		l.flights[k] = f
		go l.fly(f, k, ttl, load)
	} else {
		l.count.shared.Add(1)
	}
	f.waiters++
	l.mu.Unlock()
	select {
	case <-f.landed:
		if f.err != nil {
			return Item{}, f.err
		}
		it := f.item
		it.Value = bytes.Clone(it.Value)
		return it, nil
	case <-ctx.Done():
		l.leave(f, k)
		return Item{}, opError("load", key, ctx.Err())
	}
}

// leave counts out a caller that stops waiting. The last one ends the load.
func (l *Loader) leave(f *flight, k string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.waiters--; f.waiters == 0 {
		l.end(f, k)
	}
}

// end ends a flight: the next caller that misses the key begins a new one. mu must be held.
func (l *Loader) end(f *flight, k string) {
	f.cancel()
	if l.flights[k] == f {
		delete(l.flights, k)
	}
}

// errGoexit is the error of a LoadFunc that ends its goroutine.
var errGoexit = errors.New("cache: the LoadFunc called runtime.Goexit")

// fly runs a flight, in a goroutine of its own.
func (l *Loader) fly(f *flight, k string, ttl time.Duration, load LoadFunc) {
	failed := true
	f.err = errGoexit
	defer func() {
		if v := recover(); v != nil {
			f.err = fmt.Errorf("cache: the LoadFunc panicked: %v\n\n%s", v, debug.Stack())
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if failed {
			l.count.failed.Add(1)
			if f.ctx.Err() == nil {
				l.remember(k, f.err)
			}
		}
		l.end(f, k)
		close(f.landed)
	}()
	f.item, failed, f.err = l.load(f.ctx, []byte(k), ttl, load)
}

// load loads the item of a key and stores it. It reports whether load failed.
func (l *Loader) load(ctx context.Context, key []byte, ttl time.Duration, load LoadFunc) (it Item, failed bool, err error) {
	// The flight before this one may have stored the item since its absence was seen.
	it, r, err := l.reserve(ctx, key)
	if !errors.Is(err, ErrNotFound) {
		return it, false, err
	}
	defer r.end(ctx, key)
	l.count.loads.Add(1)
	if it, err = load(ctx); err != nil {
		return Item{}, true, err
	}
	it.CAS = 0
	switch err := l.store(ctx, key, it, ttl, r); {
	case errors.Is(err, ErrNotStored), errors.Is(err, ErrChanged): // another program was first
		if there, err := l.cache.Get(ctx, key); err == nil {
			return there, false, nil
		}
	case err != nil:
		l.count.unstored.Add(1)
	}
	return it, false, nil
}

// reservation lets a loader store what it loads. It has no number if there is none.
type reservation struct {
	in     reserver
	number uint64
	until  time.Time // it lasts at least
}

// How often a loader looks whether another one has stored what it loads.
const (
	firstLook = time.Millisecond
	lastLook  = 32 * time.Millisecond
)

// reserve returns the record of a key. Without one the error matches ErrNotFound, and this loader is to load it, with a
// reservation if it can have one.
func (l *Loader) reserve(ctx context.Context, key []byte) (it Item, r *reservation, err error) {
	r = &reservation{}
	in, ok := l.cache.(reserver)
	if !ok || l.cfg.LoadTime < 0 {
		it, err = l.cache.Get(ctx, key)
		return it, r, err
	}
	pause := backoff.New(firstLook, lastLook)
	for n, begun := 0, time.Now(); ; n++ {
		now := time.Now()
		it, number, err := in.reserve(ctx, key, l.cfg.LoadTime)
		switch {
		case number != 0:
			return it, &reservation{in, number, now.Add(l.cfg.LoadTime)}, ErrNotFound
		case ctx.Err() != nil:
			return it, r, ctx.Err()
		case errors.Is(err, ErrNoMemory), errors.Is(err, ErrOutcomeUnknown):
			return it, r, ErrNotFound
		case !errors.Is(err, errReserved), time.Since(begun)/2 > l.cfg.LoadTime:
			return it, r, err
		}
		if n == 0 {
			l.count.waited.Add(1)
		}
		_ = pause.Wait(ctx) // the next call finds that it has ended
	}
}

// store stores an item, unless the key was deleted, or another item was stored.
func (l *Loader) store(ctx context.Context, key []byte, it Item, ttl time.Duration, r *reservation) error {
	if r.number != 0 {
		it.CAS = r.number
		err := l.cache.CompareAndSwap(ctx, key, it, ttl)
		lost := errors.Is(err, ErrNotFound)
		if err == nil || lost || errors.Is(err, ErrChanged) {
			r.number = 0
		}
		if !lost || time.Now().Before(r.until) {
			return err
		}
		it.CAS = 0
	}
	return l.cache.Add(ctx, key, it, ttl)
}

// end ends a reservation that was not used, so that other loaders need not wait.
func (r *reservation) end(ctx context.Context, key []byte) {
	if r.number != 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = r.in.release(ctx, key, r.number) // otherwise it expires
	}
}

const releaseTimeout = 100 * time.Millisecond

// remember keeps the error of a load. mu must be held.
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

// remembered returns the error of a load that failed within ErrorTTL. mu must be held.
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
	Waited   uint64 // waited for another loader
	Loads    uint64 // calls of a LoadFunc
	Failed   uint64 // of those, with an error
	Unstored uint64 // loaded, but not stored for an error of the cache
}

// Stats returns what the loader did.
func (l *Loader) Stats() LoaderStats {
	n := &l.count
	return LoaderStats{Hits: n.hits.Load(), Shared: n.shared.Load(), Waited: n.waited.Load(), Loads: n.loads.Load(), Failed: n.failed.Load(), Unstored: n.unstored.Load()}
}
