package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// Tenant is one of several that share an address and see nothing of each other. Each has
// a server of its own, with its memory, its map and its limits. Memory and queue pairs
// are in the tenant's own protection domains, so the device refuses a request with
// another tenant's pointer and rkey.
type Tenant struct {
	Name string // 1 to 64 bytes
	Key  []byte // at least 16 random bytes: a client that knows it belongs to the tenant
	Config
}

// Check returns what is wrong with a tenant, whatever the device; [Tenants.Admit] refuses it for that.
func (n *Tenant) Check() error {
	cfg := n.Config
	var err error
	if cfg.Key, err = checkKey(n.Key); err != nil {
		return err
	}
	if n.Name == "" || len(n.Name) > greet.MaxName {
		return fmt.Errorf("a name has 1 to %d bytes", greet.MaxName)
	}
	return cfg.Check()
}

// Tenants are servers that share an address. It is safe for several goroutines.
type Tenants struct {
	admission *admission
	make      func(context.Context, net.Addr, Config) (*Server, error)
	ctx       context.Context // ends with Close
	stop      context.CancelFunc

	mu      sync.Mutex
	servers map[string]*Server
	coming  map[string]*coming
	serving context.Context // nil before Serve, and after
	began   bool
	closed  bool
	running sync.WaitGroup
	failed  chan error // of a server's Serve
}

// coming is a tenant in the making. Its server is made without the lock: registering memory takes long.
type coming struct {
	snapshot string
	revoked  bool
	cancel   context.CancelFunc
	over     chan struct{} // closed when it is a tenant or has failed
}

// ListenTenants listens for clients of several tenants on an address, "host:port". logger
// is told of clients that are not admitted; nil means none. The list may be empty at
// first. The Key of a tenant's [Config] is not looked at.
func ListenTenants(ctx context.Context, address string, list []Tenant, logger *slog.Logger) (*Tenants, error) {
	d, err := newAdmission(ctx, address, logger)
	if err != nil {
		return nil, err
	}
	t := &Tenants{admission: d, make: newServer, servers: map[string]*Server{}, coming: map[string]*coming{}, failed: make(chan error, 1)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	for i := range list {
		if err := t.Admit(ctx, &list[i]); err != nil {
			return nil, errors.Join(err, t.save(), t.Close())
		}
	}
	d.open()
	return t, nil
}

// save leaves all records to the next life, when this one cannot begin: they were taken from the
// last one.
func (t *Tenants) save() error {
	var errs []error
	for _, s := range t.servers {
		_, err := s.Save()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Addr returns the address at which the servers listen.
func (t *Tenants) Addr() net.Addr { return t.admission.listener.Addr() }

// Server returns the server of a tenant, or nil. Use it for [Server.Do], [Server.Stats]
// and [Server.Save]; [Tenants.Serve] serves it.
func (t *Tenants) Server(name string) *Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[name]
}

// Names returns the names of the tenants, in order.
func (t *Tenants) Names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.servers))
}

// Admit adds a tenant, with a server of its own.
func (t *Tenants) Admit(ctx context.Context, n *Tenant) error {
	if err := t.admit(ctx, n); err != nil {
		return fmt.Errorf("cache: admit tenant %.64q: %w", n.Name, err)
	}
	return nil
}

func (t *Tenants) admit(ctx context.Context, n *Tenant) error {
	if err := errors.Join(ctx.Err(), n.Check()); err != nil {
		return err
	}
	cfg := n.Config
	cfg.Key = slices.Clone(n.Key)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &coming{snapshot: cfg.Snapshot, cancel: cancel, over: make(chan struct{})}
	defer close(c.over)
	if err := t.reserve(n.Name, c); err != nil {
		return err
	}
	s, err := t.make(ctx, t.Addr(), cfg)
	joined := t.join(n.Name, c, s)
	switch {
	case err != nil:
		return err
	case errors.Is(joined, ErrClosed):
		_, err = s.Save() // it may have taken a snapshot
		return errors.Join(joined, err, s.Close())
	case joined != nil:
		return errors.Join(joined, s.Close())
	}
	return nil
}

var errRevoked = errors.New("it was revoked meanwhile")

// reserve keeps a tenant's name and snapshot for it until its server is there.
func (t *Tenants) reserve(name string, c *coming) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrClosed
	case t.servers[name] != nil || t.coming[name] != nil:
		return errors.New("there is one of this name")
	}
	snapshots := map[string]string{}
	for other, s := range t.servers {
		snapshots[filepath.Clean(s.cfg.Snapshot)] = other
	}
	for other, o := range t.coming {
		snapshots[filepath.Clean(o.snapshot)] = other
	}
	if other, used := snapshots[filepath.Clean(c.snapshot)]; used && c.snapshot != "" {
		return fmt.Errorf("its snapshot %s is that of tenant %q", c.snapshot, other)
	}
	t.coming[name] = c
	return nil
}

// join lets a tenant's clients in; s is nil if it has no server.
func (t *Tenants) join(name string, c *coming, s *Server) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.coming, name)
	switch {
	case s == nil:
		return nil
	case c.revoked:
		return errRevoked
	case t.closed:
		return ErrClosed
	}
	t.servers[name] = s
	if t.serving != nil {
		t.serve(s)
	}
	t.admission.set(name, tenant{s.cfg.Key, s})
	return nil
}

// SetKey gives a tenant another key, for later connections.
func (t *Tenants) SetKey(name string, key []byte) error {
	key, err := checkKey(key)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.servers[name]
	if s == nil {
		return fmt.Errorf("cache: set key of tenant %.64q: there is none of this name", name)
	}
	t.admission.set(name, tenant{key, s})
	return nil
}

// Revoke ends a tenant. When it returns, the tenant's key admits no client, its clients are
// cut off, and its memory is deregistered, so that no pointer to it is of any use. Its
// records are gone; to keep them, save them first ([Server.Save]). Revoking an unknown
// tenant is not an error.
func (t *Tenants) Revoke(name string) error {
	t.admission.remove(name)
	t.mu.Lock()
	if c := t.coming[name]; c != nil {
		c.revoked = true
		c.cancel()
		t.mu.Unlock()
		<-c.over
		t.mu.Lock()
	}
	s := t.servers[name]
	delete(t.servers, name)
	t.admission.remove(name) // again: SetKey may have come between
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	return s.Close()
}

// serve starts to serve a server's clients. t.mu must be held.
func (t *Tenants) serve(s *Server) {
	ctx := t.serving
	t.running.Go(func() {
		if err := s.Serve(ctx); err != nil && !errors.Is(err, ErrClosed) && ctx.Err() == nil {
			select {
			case t.failed <- err:
			default:
			}
		}
	})
}

// Serve admits and serves clients of all tenants, as [Server.Serve] does those of one server: it returns
// nil if ctx ended, the error of the listener or of a server that failed, or [ErrClosed]. It may be
// called once. If ctx has ended already, Serve does nothing and returns its error.
func (t *Tenants) Serve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cache: serve: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	t.mu.Lock()
	if t.closed || t.began {
		t.mu.Unlock()
		return fmt.Errorf("cache: serve: %w", ErrClosed)
	}
	t.serving, t.began = ctx, true
	for _, s := range t.servers {
		t.serve(s)
	}
	t.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- t.admission.serve(ctx) }()
	var err error
	select {
	case err = <-t.failed:
		cancel()
		err = errors.Join(err, <-served)
	case err = <-served:
		cancel()
	}
	t.mu.Lock()
	t.serving = nil // a tenant that is admitted now is not served
	t.mu.Unlock()
	t.running.Wait()
	if t.ctx.Err() != nil {
		return fmt.Errorf("cache: serve: %w", ErrClosed)
	}
	return err
}

// Close cuts off all clients and frees everything. Closing twice is not an error.
func (t *Tenants) Close() error {
	t.stop()
	t.mu.Lock()
	t.closed = true
	servers := t.servers
	t.servers = map[string]*Server{}
	coming := slices.Collect(maps.Values(t.coming))
	t.mu.Unlock()
	for _, c := range coming {
		c.cancel()
		<-c.over
	}
	errs := []error{t.admission.close()}
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	t.running.Wait()
	return errors.Join(errs...)
}

// Refused returns the counters of the address that tenants share.
func (t *Tenants) Refused() Refused { return t.admission.refused.stats() }
