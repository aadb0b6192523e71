package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/advice"
	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/loglimit"
	"github.com/goverbs/goverbs/verbs"
)

// logPause is the least time between two log lines with the same message.
const logPause = time.Second

// Config configures a server. The zero value is fine to try it out.
type Config struct {
	// Device is the name of the RDMA device; empty means that of the address to listen
	// on. Clients reach it by the GID of the address that they connect to, and reach the
	// target by the GID of the address to listen on. If the device has no GID of that
	// address, because it belongs to another network, any of its GIDs is used.
	Device string
	// Memory is for records, in bytes, in multiples of 64 KiB; 0 means 64 MiB. The map needs additional memory,
	// which is registered too: 56 to 112 bytes for each record, and half as much again
	// while the map doubles.
	Memory int
	// Pages says whether the memory uses huge pages.
	Pages verbs.PageSize
	// MaxValue is the longest value in bytes, at most 64 MiB. 0 means that the longest record, with its header and
	// the longest key, has 2 MiB, or a quarter of Memory if that is less.
	MaxValue int
	// Lease is how long a client may take to say that it is done with freed memory; after
	// that it is cut off. 0 means five seconds.
	Lease time.Duration
	// Log is how many changes are kept for slow clients. A client that is further behind
	// gets the whole map again. 0 means 65536.
	Log int
	// Snapshot is the file to which [Server.Save] writes the records, and from which
	// Listen loads them; the file is then gone. If Snapshot is empty, every life of the
	// server begins without records.
	Snapshot string
	// Key has at least 16 bytes. Clients have to prove that they have it. With nil any
	// client is admitted.
	Key []byte
	// Names are the server's addresses as its clients write them, such as "cache1:7481",
	// beside the IP address. A client that has written another one is refused, so that none
	// reads and writes here what belongs to another server, to which the name may lead by
	// mistake. Without names a client is refused if it has connected to another address
	// than the one at which its connection arrives, as through a relay.
	Names []string
	// MaxClients is how many clients may be connected, or wait to connect by RDMA; 0 means
	// any number. It applies only if there is a key: without one any client could use up
	// all places.
	MaxClients int
	// DC lets clients without a queue pair here READ, through a dynamically connected
	// target ([github.com/goverbs/goverbs/cache.Config]'s DC).
	DC DCConfig
	// Connect says how connections behave.
	Connect verbs.ConnectConfig
	// PollFor is for how long, after the last request, the server polls for requests
	// before it waits for an event, as in [verbs.CQConfig]: 0 means not at all. It takes
	// the time of an idle CPU.
	PollFor time.Duration
	// Logger is told of clients that end with an error; nil means none. Of lines with one message there is at
	// most one a second, with the number of those left out before it.
	Logger *slog.Logger
}

// Check returns what is wrong with the configuration on any device; [Listen] refuses it with
// the same error. It does not check the keys of tenants.
func (c Config) Check() error {
	c.defaults()
	switch {
	case c.Memory < memoryUnit:
		return fmt.Errorf("cache: memory of %d bytes: less than %d", c.Memory, memoryUnit)
	case c.MaxValue < 0 || c.MaxValue > wire.MaxValue:
		return fmt.Errorf("cache: values of %d bytes: from 0 to %d", c.MaxValue, wire.MaxValue)
	case c.longest() > c.Memory/memoryUnit*memoryUnit:
		return fmt.Errorf("cache: values of %d bytes: memory of %d has no room for one", c.MaxValue, c.Memory)
	case slices.ContainsFunc(c.Names, func(n string) bool { return n == "" || len(n) > greet.MaxServer }):
		return fmt.Errorf("cache: names of the server: each has 1 to %d bytes", greet.MaxServer)
	case c.Lease < 10*time.Millisecond:
		return fmt.Errorf("cache: lease of %v: shorter than 10 ms", c.Lease)
	}
	if c.Key != nil {
		_, err := checkKey(c.Key)
		return err
	}
	return nil
}

// memoryUnit is what the memory is a multiple of.
const memoryUnit = 64 << 10

// longest returns the length of the longest record.
func (c *Config) longest() int { return wire.RecordSize(wire.MaxKey, c.MaxValue) }

// defaults sets the fields that were left out.
func (c *Config) defaults() {
	if c.Memory == 0 {
		c.Memory = 64 << 20
	}
	if c.MaxValue == 0 {
		c.MaxValue = max(min(2<<20, c.Memory/4)-wire.RecordSize(wire.MaxKey, 0), 0)
	}
	if c.Lease == 0 {
		c.Lease = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// ErrClosed is what a closed server returns.
var ErrClosed = verbs.ErrClosed

// Server is the server of a cache. It is safe for several goroutines.
type Server struct {
	cfg       Config
	addr      net.Addr
	admission *admission // if it has its own
	links     *queue     // clients that have been admitted, by RDMA
	streams   *queue     // and by TCP
	begun     time.Time
	epoch     uint32

	dev     *verbs.Device
	records *verbs.PD  // of the arena and the queue pairs that READ it
	calls   *verbs.PD  // of messages
	queues  queues     // where messages complete
	nothing *verbs.CQ  // of the queue pairs that READ: this side asks nothing of them, and
	none    *verbs.SRQ // takes nothing from them
	windows *link.Windows
	arena   []*verbs.MR
	through through
	offer   []verbs.Region
	latency latency.Table

	mu      sync.Mutex // of what follows
	closed  bool
	store   *store.Store
	clients map[uint64]*client
	slow    slow
	scratch scratch
	spares  spares
	workers workers
	shards  *shards // nil: the server is none of a cluster
	tables  tables
	advice  advice.Advice
	// places has the number of connections of each client that was let in.
	places  map[[16]byte]int
	last    uint64        // client
	settled chan struct{} // closed when quarantine has moved on; nil while no goroutine waits
	flushes []flushing    // that are not over
	asking  bool          // clients will be asked again how far they are
	due     bool          // clients will be told of changes
	nextDue time.Time     // not before that
	toldOf  uint64        // the last change that all know of
	tell    *time.Timer   // that tells them

	stop    context.CancelFunc
	stopped context.Context
	running sync.WaitGroup
}

// Listen makes a server that listens for clients on an address, "host:port". It binds the
// address first, so that a snapshot is not used up in vain. A client that connects before
// Listen returns is reset; one that connects later waits for [Server.Serve].
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

// empty makes an empty store of the memory, of an epoch of its own.
func (s *Server) empty() error {
	a, err := arena.New(s.cfg.longest())
	if err != nil {
		return err
	}
	for _, mr := range s.arena {
		if _, err := a.Add(mr.Bytes()); err != nil {
			return err
		}
	}
	if err := s.freeTables(); err != nil {
		return err
	}
	var secret [20]byte
	_, _ = rand.Read(secret[:]) // never fails
	le := binary.LittleEndian
	s.epoch = max(le.Uint32(secret[16:]), 1)
	s.store, err = store.New(store.Config{
		Epoch: s.epoch, Secret: wire.Secret{le.Uint64(secret[:]), le.Uint64(secret[8:])}, Arena: a,
		AllocTable: s.allocTable, FreeTable: s.freeTable, SoonTable: s.soonTable,
		Depth: 8, // in a smaller one two full buckets are not rare, which cost a record
		Log:   s.cfg.Log, Lease: uint64(s.cfg.Lease / time.Millisecond), MaxValue: s.cfg.MaxValue,
		CAS: firstCAS(time.Now()),
	})
	return err
}

// firstCAS returns what the CAS numbers of a life are above. A client may have kept one of a life that
// left no snapshot, and must not replace by it what it has never seen. No life stores a record each
// nanosecond, so the numbers of the next one are higher.
func firstCAS(begun time.Time) uint64 { return uint64(begun.UnixNano()) }

// now returns the store's time, in ms.
func (s *Server) now() uint64 { return uint64(time.Since(s.begun)/time.Millisecond) + 1 }

// Addr returns the address at which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Device returns the name of the RDMA device.
func (s *Server) Device() string { return s.dev.Name() }

// Epoch returns the number of this life of the server.
func (s *Server) Epoch() uint32 { return s.epoch }

// Serve admits clients until ctx ends, which is no error, or Close. It may be called
// once. If ctx has ended already, Serve does nothing and returns its error.
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

// ended logs why a client has ended.
func (s *Server) ended(who net.Addr, err error) {
	s.cfg.Logger.Info("cache: a client has ended", "address", who.String(), "error", err)
}

// Close cuts off all clients and frees everything. Closing twice is not an error.
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

// Do carries out a request of this process, such as a gateway's. The reply's value is a copy, in
// the request's Into if that has room. If there is no free memory, Do waits at most two leases for
// memory in quarantine.
func (s *Server) Do(ctx context.Context, q *wire.Request) (wire.Reply, error) {
	if err := ctx.Err(); err != nil {
		return wire.Reply{}, fmt.Errorf("cache: %w", err)
	}
	came := time.Since(s.begun)
	a, err := s.do(ctx, q)
	if err == nil {
		s.took(latency.Gateway, latency.Of(q), came)
	}
	return a, err
}

func (s *Server) do(ctx context.Context, q *wire.Request) (wire.Reply, error) {
	var enough <-chan time.Time // of waiting
	for {
		s.mu.Lock()
		if s.store == nil || s.closed {
			s.mu.Unlock()
			return wire.Reply{}, fmt.Errorf("cache: %w", ErrClosed)
		}
		a := s.execute(q)
		a.Value = append(q.Into[:0], a.Value...)
		quarantine := a.Status == wire.NoMemory && s.store.Stats().Arena.Quarantine > 0
		if s.announce(); quarantine {
			s.askAll()
			if s.settled == nil {
				s.settled = make(chan struct{})
			}
		}
		settled := s.settled
		var over chan struct{}
		if q.Op == wire.OpFlush && !s.store.Flushed(a.Seq) {
			over = make(chan struct{})
			s.awaitFlush(a.Seq, func() { close(over) })
		}
		s.mu.Unlock()
		if over != nil {
			return a, s.flushed(ctx, over)
		}
		if !quarantine {
			return a, nil
		}
		if enough == nil {
			enough = time.After(2 * s.cfg.Lease)
		}
		select { // clients are soon done with what was freed, or cut off
		case <-settled:
		case <-enough: // others have taken it
			return a, nil
		case <-ctx.Done():
			return wire.Reply{}, ctx.Err()
		case <-s.stopped.Done():
		}
	}
}
