package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/loglimit"
	"github.com/goverbs/goverbs/verbs"
)

// Listen makes a server that listens for clients on an address, "host:port", registers its memory,
// and loads the snapshot, if there is one. It binds the address first, so that a snapshot
// is not used up in vain. A client that connects before Listen returns is reset; one that
// connects later waits for [Server.Serve]. If ctx ends before the snapshot is read, Listen frees
// everything and returns the context's error. The end of ctx after Listen has no effect.
func Listen(ctx context.Context, address string, cfg Config) (*Server, error) {
	var key []byte
	var err error
	if cfg.Key != nil {
		if key, err = checkKey(cfg.Key); err != nil {
			return nil, err
		}
	}
	d, err := newAdmission(ctx, address, cfg.Logger)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, d.listener.Addr(), cfg)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	s.admission = d
	d.set("", tenant{key, s})
	d.open()
	return s, nil
}

// newServer makes a server; its clients are admitted by the caller.
func newServer(ctx context.Context, addr net.Addr, cfg Config) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if err := cfg.CheckHost(); err != nil {
		return nil, err
	}
	cfg.defaults()
	cfg.Logger = loglimit.New(cfg.Logger, logPause)
	s := bare(addr, cfg)
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.tables.serving = true
	s.running.Go(s.tick)
	return s, nil
}

// bare returns a server without device, memory and store.
func bare(addr net.Addr, cfg Config) *Server {
	s := &Server{
		cfg: cfg, addr: addr, links: newQueue(addr), streams: newQueue(addr), begun: time.Now(), clients: map[uint64]*client{}, places: map[[16]byte]int{}, slow: slow{},
	}
	s.queues.make = s.makeQueue
	s.tables = tables{register: s.registerTable, all: map[*byte]memory{}}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.tell = time.AfterFunc(time.Hour, s.announceNow)
	return s
}

func (s *Server) open(ctx context.Context) error {
	var err error
	if s.cfg.Device != "" {
		s.dev, err = verbs.Open(s.cfg.Device, verbs.DeviceConfig{})
	} else if s.listensAt().IsUnspecified() {
		return fmt.Errorf("cache: listen on %s: an address of all devices: say which device", s.addr)
	} else {
		s.dev, _, err = verbs.OpenFor(ctx, s.listensAt(), verbs.DeviceConfig{})
	}
	if err != nil {
		return err
	}
	if s.records, err = s.dev.AllocPD(); err != nil {
		return err
	}
	if s.calls, err = s.dev.AllocPD(); err != nil {
		return err
	}
	s.windows = link.NewWindows(s.calls)
	if s.nothing, err = s.dev.CreateCQ(verbs.CQConfig{Depth: 1, PollOnly: true}); err != nil {
		return err
	}
	if s.none, err = s.records.CreateSRQ(verbs.SRQConfig{MaxWR: 1}); err != nil {
		return err
	}
	return s.furnish(ctx)
}

// furnish registers the memory and makes the store. Until it takes the snapshot it ends with ctx, between two
// registrations.
func (s *Server) furnish(ctx context.Context) error {
	for left := s.cfg.Memory / memoryUnit * memoryUnit; left > 0; left -= min(left, wire.MaxRegion) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cache: set up %d bytes: %w", s.cfg.Memory, err)
		}
		mr, err := s.records.AllocMR(min(left, wire.MaxRegion), verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true, Pages: s.cfg.Pages})
		if err != nil {
			return err
		}
		s.arena, s.offer = append(s.arena, mr), append(s.offer, mr.Region())
	}
	if len(s.offer) > verbs.MaxRegions {
		return fmt.Errorf("cache: memory of %d bytes: more than %d registrations", s.cfg.Memory, verbs.MaxRegions)
	}
	if err := errors.Join(ctx.Err(), s.empty()); err != nil {
		return err
	}
	return s.begin()
}

// begin takes the records of the last life, and opens the target. If there is none, the next life finds the records.
func (s *Server) begin() error {
	if s.cfg.Snapshot != "" {
		if err := s.warm(s.cfg.Snapshot); err != nil {
			return err
		}
	}
	err := s.openThrough()
	if err != nil {
		_, saved := s.Save()
		err = errors.Join(err, saved)
	}
	return err
}

// Serve admits and serves clients until ctx ends, the listener fails, or Close. Then it closes the
// listener, cuts off all clients, and returns when none is left: nil if ctx ended, the listener's error,
// or [ErrClosed]. It may be called once. [Server.Do] goes on until [Server.Save] or Close. If ctx has ended
// already, Serve does nothing and returns its error.
func (s *Server) Serve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cache: serve: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("cache: serve: %w", ErrClosed)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	var others sync.WaitGroup
	others.Go(func() { s.serveStreams(ctx) })
	var served error
	if s.admission != nil {
		others.Go(func() {
			served = s.admission.serve(ctx)
			cancel()
		})
	}
	s.serveLinks(ctx)
	cancel()
	others.Wait()
	if s.stopped.Err() != nil {
		return fmt.Errorf("cache: serve: %w", ErrClosed)
	}
	return served
}

// SetKey gives a server that has a key another one, for later connections. Tenants have
// [Tenants.SetKey].
func (s *Server) SetKey(key []byte) error {
	key, err := checkKey(key)
	if err == nil && (s.admission == nil || s.cfg.Key == nil) {
		err = fmt.Errorf("cache: set key: %w: the server has none of its own", verbs.ErrAttributes)
	}
	if err == nil {
		s.admission.set("", tenant{key, s})
	}
	return err
}

// Close cuts off all clients, waits for Serve, and frees everything. Calls of Do that wait end with
// [ErrClosed]. Close a gateway, or a cluster's Member, before its server. Closing twice is not an error.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.tell.Stop()
	var errs []error
	if s.admission != nil {
		errs = append(errs, s.admission.close())
	}
	errs = append(errs, s.links.Close(), s.streams.Close())
	s.running.Wait()
	s.workers.close()
	errs = append(errs, s.through.close())
	// Registered memory goes, and the store with it.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = nil
	errs = append(errs, s.freeTables())
	for _, mr := range s.arena {
		errs = append(errs, mr.Close())
	}
	if s.none != nil {
		errs = append(errs, s.none.Close())
	}
	if errs = append(errs, s.queues.close()); s.nothing != nil {
		errs = append(errs, s.nothing.Close())
	}
	if s.windows != nil {
		errs = append(errs, s.windows.Close())
	}
	for _, pd := range []*verbs.PD{s.records, s.calls} {
		if pd != nil {
			errs = append(errs, pd.Close())
		}
	}
	if s.dev != nil {
		errs = append(errs, s.dev.Close())
	}
	return errors.Join(errs...)
}
