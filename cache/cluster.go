package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/rendezvous"
)

// Cache is what a [Client] and a [Cluster] have in common.
type Cache interface {
	Get(ctx context.Context, key []byte) (Item, error)
	GetInto(ctx context.Context, key, dst []byte) (Item, error)
	GetMulti(ctx context.Context, keys [][]byte, into []Result) []Result
	Set(ctx context.Context, key []byte, it Item, ttl time.Duration) error
	SetMulti(ctx context.Context, puts []Entry, into []error) []error
	Add(ctx context.Context, key []byte, it Item, ttl time.Duration) error
	Replace(ctx context.Context, key []byte, it Item, ttl time.Duration) error
	CompareAndSwap(ctx context.Context, key []byte, it Item, ttl time.Duration) error
	Append(ctx context.Context, key, value []byte) error
	Prepend(ctx context.Context, key, value []byte) error
	Delete(ctx context.Context, key []byte) error
	Increment(ctx context.Context, key []byte, delta uint64) (uint64, error)
	Decrement(ctx context.Context, key []byte, delta uint64) (uint64, error)
	Touch(ctx context.Context, key []byte, ttl time.Duration) error
	TTL(ctx context.Context, key []byte) (time.Duration, error)
	FlushAll(ctx context.Context) error
	Close() error
}

// ClusterConfig configures a client of many servers. The zero value is fine.
type ClusterConfig struct {
	// Config is for each server's client: MapBytes applies to each map. FailFast is
	// always true, whatever it says.
	Config
	// MissWhenDown makes Get, GetInto and GetMulti treat a server that is unavailable as one
	// that has nothing: the error matches both [ErrNotFound] and [ErrUnavailable]. Changes
	// still fail.
	MissWhenDown bool
	// GatherTimeout is how long DialCluster waits for the other servers once one is connected;
	// 0 means a second.
	GatherTimeout time.Duration
}

// Cluster is a client of many servers, each of which has a share of the keys, as with
// memcached. It is safe for any number of goroutines.
//
// Rendezvous hashing of the addresses, as they are written, chooses a key's server: all
// clients that share a cache need the same list, in any order. When the list changes,
// only keys of servers that come or go move. Servers know nothing of each other. While a
// key's server is down, no other takes its place: there are no replicas.
//
// If the servers are members of a cluster with a placement (package cluster), they say which of them has
// which keys, and which servers there are. The addresses are then only where to begin, and the client
// follows each change: an operation whose key moves is sent again, to the next server. When a server dies others take
// over its keys, without records; until then they are unavailable.
//
// The operations are those of [Client], and so are their guarantees, for clients with the
// same list. An operation on a key of a server without a connection does not wait: its
// error matches [ErrUnavailable], and the keys of other servers are served meanwhile. An
// operation under way when a server's host falls silent ends when the connection ends, or
// with its context.
type Cluster struct {
	cfg    ClusterConfig
	routes atomic.Pointer[routes]
	parts  sync.Pool // of *part

	mu     sync.Mutex // of what follows
	closed bool
	left   sync.WaitGroup // clients of servers that are no members any more, until they are closed
}

var (
	_ Cache = (*Client)(nil)
	_ Cache = (*Cluster)(nil)
)

// DialCluster makes a client of the servers at addresses, "host:port", which must differ.
// It returns when at least one server is connected, and each of the others is connected
// too, cannot be reached, or has had the time GatherTimeout in [ClusterConfig]. It fails when
// none can be reached, or when ctx ends before one is connected. Servers without a
// connection are tried again as long as the cluster is open.
func DialCluster(ctx context.Context, addresses []string, cfg ClusterConfig) (*Cluster, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cache: dial cluster: %w", err)
	}
	list, err := rendezvous.New(addresses)
	if err != nil {
		return nil, fmt.Errorf("cache: dial cluster: %w", err)
	}
	if cfg.FailFast = true; cfg.GatherTimeout == 0 {
		cfg.GatherTimeout = time.Second
	}
	c := &Cluster{cfg: cfg}
	r := &routes{list: list, next: make(chan struct{})}
	for _, address := range addresses {
		one, err := newClient(address, cfg.Config)
		if err != nil {
			return nil, err
		}
		one.placed = c.placed
		r.clients = append(r.clients, one)
	}
	c.routes.Store(r)
	for _, one := range r.clients {
		go one.keep(nil)
	}
	for before := (*routes)(nil); r != before; r = c.routes.Load() {
		before, err = r, r.gather(ctx, cfg.GatherTimeout)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cache: dial cluster: %w", err), c.Close())
	}
	return c, nil
}

// gather waits until each server was tried, or for some time if one is connected.
func (r *routes) gather(ctx context.Context, timeout time.Duration) error {
	type attempt struct {
		server *Client
		err    error
	}
	tries, cancel := context.WithCancel(ctx)
	defer cancel()
	tried := make(chan attempt, len(r.clients))
	for _, one := range r.clients {
		go func() { tried <- attempt{one, one.tried(tries)} }()
	}
	var late <-chan time.Time
	var failures []error
	for range r.clients {
		select {
		case a := <-tried:
			if a.err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", a.server.address, a.err))
			} else if late == nil {
				late = time.After(timeout)
			}
		case <-late:
			return nil
		}
	}
	if late == nil {
		return errors.Join(failures...)
	}
	return nil
}

// tried waits for the end of the first attempt to connect, and returns its error.
func (c *Client) tried(ctx context.Context) error {
	for {
		c.mu.Lock()
		changed, failure := c.changed, c.failure
		c.mu.Unlock()
		switch {
		case c.now.Load() != nil:
			return nil
		case failure != nil:
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close closes the clients of all servers. Closing twice is not an error.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	clients := c.routes.Load().clients
	var errs []error
	for _, one := range clients {
		one.stop() // all at once
	}
	for _, one := range clients {
		errs = append(errs, one.Close())
	}
	c.left.Wait()
	return errors.Join(errs...)
}

// Server returns the client of a key's server. It belongs to the cluster, and closes with
// it, or when the server is no member any more.
func (c *Cluster) Server(key []byte) *Client { return c.routes.Load().server(key) }

// ServerStats are the counters of one server of a cluster.
type ServerStats struct {
	Address string
	// Err is why there is no connection; nil while there is one.
	Err error
	Stats
}

// Stats returns what the clients of the servers did, in the order of the addresses, or of the members.
func (c *Cluster) Stats() []ServerStats {
	clients := c.routes.Load().clients
	out := make([]ServerStats, len(clients))
	for i, one := range clients {
		out[i] = ServerStats{Address: one.address, Stats: one.Stats()}
		if !out[i].Connected {
			_, out[i].Err = one.session(one.ctx)
		}
	}
	return out
}

// each calls do for all servers at once, and joins the errors.
func (r *routes) each(do func(*Client) error) error {
	errs := make([]error, len(r.clients))
	var all sync.WaitGroup
	for i, one := range r.clients {
		all.Go(func() {
			if err := do(one); err != nil {
				errs[i] = fmt.Errorf("%s: %w", one.address, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// missed returns the error of a read: with MissWhenDown a server that is down is a miss.
func (c *Cluster) missed(err error) error {
	if err != nil && c.cfg.MissWhenDown && errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
