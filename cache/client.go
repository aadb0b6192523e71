package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// Config is what a client is made of. The zero value is fine.
type Config struct {
	// Dialer connects; nil means a plain one. The device is that of the connection's
	// own address.
	Dialer *net.Dialer
	// Connect says how connections behave.
	Connect verbs.ConnectConfig
	// DC is an initiator through which this client READs, instead of by a queue pair to the server, if
	// the server has a target for that (DC in the configuration of package server) and a READ of it
	// shows that it answers. Otherwise the client connects as without an initiator, by RDMA or,
	// unless RequireRDMA is set, by TCP; Stats say why (Instead), and the Logger. The initiator is tried
	// again each RetryRDMA, unless it was closed, or the server has no target. Any number of clients may share the initiator, which has to be of a device that
	// reaches the server's. It does not close with them; close it after them, or they go on
	// without. Calls and what the server tells go by TCP.
	DC *dc.Initiator
	// Tenant and Key are whom this is a client of, and what proves it to the server, which
	// has to prove the same. The key does not cross the wire. Without a key the server has
	// to be everybody's.
	Tenant string
	Key    []byte
	// RequireRDMA has the client do without a server that it can reach by TCP only. By
	// default it connects by TCP where there is no RDMA, says so (Stats, Logger), makes
	// everything a call, and goes over to RDMA when there is any: a better way than the one
	// that there is is tried each RetryRDMA, 0 meaning 30 seconds.
	RequireRDMA bool
	RetryRDMA   time.Duration
	// MaxEntries is how many entries of the map are kept; 0 means all. A key that has
	// no entry here is asked of the server. Entries take 27 to 30 bytes.
	MaxEntries int
	// MapBytes is how much memory the map may take; 0 means as much as it needs. Where it does
	// not have all entries, Get, GetInto and the proxy's gets READ the server's own map
	// for a key that has none here: one bucket, or two, and the record, or a miss, without
	// the server. A map that fits stays whole.
	MapBytes int
	// MaxRecord is the longest record in bytes that is READ; 0 means 2 MiB. Longer ones
	// are asked of the server.
	MaxRecord int
	// Pacer paces what is longer than PaceFrom bytes, be it a record, or what GetMulti READs by one
	// doorbell: it is READ in parts, each when the pacer has credit for it. nil means that of the
	// device ([pacer.For]), which finds its threshold by itself, and which all clients of this
	// process share whose connections go by that device. A pacer that is paused holds up what it
	// paces; if that takes longer than the server's lease, the server cuts this client off. It is
	// not closed with the client.
	Pacer *pacer.Pacer
	// PaceFrom is up to how many bytes go without the pacer; 0 means 64 KiB. Below 0 everything
	// does, in one READ.
	PaceFrom int
	// SampleEvery is how many hits stand for one that the server is told of, for its
	// choice of what to evict; 0 means 16.
	SampleEvery int
	// NearBytes is memory for copies of records that were READ, which answer without a READ
	// as long as the server tells of no change; 0 means that there are none. Get, GetInto
	// and GetMulti may then answer what was changed NearStale ago at most: see the package's
	// documentation. Copies of several goroutines' reads are made one at a time.
	NearBytes int
	// NearStale is how old a copy that is out of date may be; 0 means a second. The server
	// is heard each sixteenth of its lease at least, which is 312 ms by default: with a
	// shorter time copies are of use only when there are changes.
	NearStale time.Duration
	// FailFast has operations that find no connection end with [ErrUnavailable] at once.
	// Otherwise they wait for one as long as their contexts allow.
	FailFast bool
	// Spin is how often a READ is looked for before its goroutine parks until there is
	// an event, as [verbs.CQConfig] has it: 0 means a few times, below 0 not at all.
	Spin int
	// PollFor is for how long, after that, READs and what the server sends are looked for while other
	// goroutines run, as [verbs.CQConfig] has it: 0 means not at all. It takes the time of idle CPUs.
	PollFor time.Duration
	// Logger hears of connections that end; nil means nobody does.
	Logger *slog.Logger
}

// Client is a client of one server. It is safe for any number of goroutines.
type Client struct {
	address string
	cfg     Config
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	keeping chan struct{} // closed when nobody connects any more

	now     atomic.Pointer[session] // nil while there is no connection
	mu      sync.Mutex              // of what follows
	changed chan struct{}           // closed when now changes
	failure error                   // of the last attempt to connect
	count   counters
}

type counters struct {
	hits, near, probes, forwarded, reads, calls, misses, confirmed, refused, sessions, sharedReads, sharedChanges, blocked atomic.Uint64
}

// Dial makes a client of the server at an address, "host:port". It returns when the
// client has a connection, whatever part of the map has come. From then on the client
// connects again by itself when it has to: calls wait for that as long as their contexts
// allow.
func Dial(ctx context.Context, address string, cfg Config) (*Client, error) {
	c, err := newClient(address, cfg)
	if err != nil {
		return nil, err
	}
	s, err := c.connect(ctx, c.ways(), func() {})
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("cache: dial %s: %w", address, err)
	}
	c.set(s, nil)
	go c.keep(s)
	return c, nil
}

// newClient makes a client that has no connection and does not look for one.
func newClient(address string, cfg Config) (*Client, error) {
	if cfg.MaxRecord == 0 {
		cfg.MaxRecord = 2 << 20
	}
	if cfg.PaceFrom == 0 {
		cfg.PaceFrom = pacedFrom
	}
	if cfg.NearStale == 0 {
		cfg.NearStale = time.Second
	}
	if cfg.RetryRDMA == 0 {
		cfg.RetryRDMA = 30 * time.Second
	}
	if len(cfg.Tenant) > greet.MaxName || len(cfg.Key) > 0 && len(cfg.Key) < greet.MinKey {
		return nil, fmt.Errorf("cache: dial %s: %w: a tenant's name has %d bytes at most, its key %d at least",
			address, verbs.ErrAttributes, greet.MaxName, greet.MinKey)
	}
	cfg.Key = slices.Clone(cfg.Key)
	if n := max(cfg.MapBytes/mirror.EntryBytes, 1); cfg.MapBytes > 0 && (cfg.MaxEntries == 0 || n < cfg.MaxEntries) {
		cfg.MaxEntries = n
	}
	if cfg.RetryRDMA < 0 || cfg.MapBytes < 0 || cfg.NearBytes < 0 || cfg.NearStale < 0 || cfg.MaxEntries < 0 || cfg.MaxRecord < 0 || cfg.SampleEvery < 0 {
		return nil, fmt.Errorf("cache: dial %s: %w: a number below 0", address, verbs.ErrAttributes)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{address: address, cfg: cfg, keeping: make(chan struct{}), changed: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Address is the server's, as Dial was told it.
func (c *Client) Address() string { return c.address }

// Close ends the connection: calls under way get [ErrClosed]. Closing twice is not an
// error.
func (c *Client) Close() error {
	c.stop()
	<-c.keeping
	return nil
}

// keep connects again whenever a session has ended, and at first if there is none.
func (c *Client) keep(s *session) {
	defer close(c.keeping)
	replaced := closed
	defer func() { <-replaced }()
	for {
		if s == nil {
			if s = c.again(); s == nil {
				return
			}
			c.set(s, nil)
		}
		var retry <-chan time.Time
		if s.hopes() {
			retry = time.After(c.cfg.RetryRDMA)
		}
		select {
		case <-retry:
			if b := c.better(s); b != nil {
				replaced = c.replace(s, b, replaced)
				s = b
			}
			continue
		case <-s.over:
		case <-c.ctx.Done():
			s.end(ErrClosed)
		}
		cause := s.cause()
		c.set(nil, cause)
		if err := s.close(); err != nil {
			c.cfg.Logger.Error("cache: close connection", "server", c.address, "error", err)
		}
		if c.ctx.Err() != nil {
			return
		}
		c.cfg.Logger.Info("cache: connection has ended", "server", c.address, "error", cause)
		s = nil
	}
}

// attempt is how long one attempt to connect may take, from when it is this client's turn: a host that does not answer is
// soon asked again, and not at TCP's ever longer intervals.
const attempt = 10 * time.Second

// again tries until there is a session, or the client closes.
func (c *Client) again() *session {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithCancel(c.ctx)
		limit := time.AfterFunc(attempt, cancel)
		s, err := c.connect(ctx, c.ways(), func() { limit.Reset(attempt) })
		limit.Stop()
		if err != nil && ctx.Err() != nil {
			err = errNoAnswer // and not the caller's deadline
		}
		if cancel(); err == nil {
			return s
		}
		c.set(nil, err)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return nil
		}
	}
}

func (c *Client) set(s *session, failure error) {
	c.now.Store(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = failure
	close(c.changed)
	c.changed = make(chan struct{})
}

// session waits for a connection. One that has ended is none.
func (c *Client) session(ctx context.Context) (*session, error) {
	if s := c.now.Load(); s != nil && !s.ended.Load() {
		return s, nil
	}
	for {
		c.mu.Lock()
		changed, failure := c.changed, c.failure
		c.mu.Unlock()
		switch s := c.now.Load(); {
		case c.ctx.Err() != nil:
			return nil, ErrClosed
		case s != nil && !s.ended.Load():
			return s, nil
		case c.cfg.FailFast:
			return nil, c.unavailable(s, failure)
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), failure)
		}
	}
}

// unavailable says that there is no connection, and why not: the last one has ended, or
// none could be made.
func (c *Client) unavailable(s *session, failure error) error {
	switch {
	case s != nil:
		failure = s.cause()
	case failure == nil:
		failure = errConnecting
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, c.address, failure)
}

// Stats are counters, and what there is now.
type Stats struct {
	Hits      uint64 // answered by READs alone
	NearHits  uint64 // answered without: by a copy
	Probes    uint64 // of the server's own map, by READs: hits and misses that it answered
	Forwarded uint64 // hits to which the tombstone of an older record led
	Reads     uint64 // READs
	Calls     uint64 // messages to the server
	Misses    uint64 // of Get and GetInto
	Confirmed uint64 // not in the map: the server was asked
	Refused   uint64 // READs of what was no longer, or not yet, what the map said
	Sessions  uint64 // connections, one after the other
	Blocked   uint64 // READs through an initiator that failed: of records the server was asked instead
	// SharedReads and SharedChanges are of shared records, and carried out; of what ended with an
	// error that matches [ErrUnknown] nobody knows.
	SharedReads, SharedChanges uint64
	Connected                  bool
	Transport                  Transport // DC, RDMA or TCP; empty without a connection
	Instead                    string    // why it is TCP, or, of a client with an initiator, RDMA
	Whole                      bool      // the map is there
	Entries                    int       // of the map
	MapBytes                   int       // that it takes
	Epoch                      uint32    // of the server
}

// Stats tells what the client did.
func (c *Client) Stats() Stats {
	n := &c.count
	st := Stats{
		Hits: n.hits.Load(), NearHits: n.near.Load(), Probes: n.probes.Load(), Forwarded: n.forwarded.Load(), Reads: n.reads.Load(), Calls: n.calls.Load(), Misses: n.misses.Load(),
		Confirmed: n.confirmed.Load(), Refused: n.refused.Load(), Sessions: n.sessions.Load(), Blocked: n.blocked.Load(),
		SharedReads: n.sharedReads.Load(), SharedChanges: n.sharedChanges.Load(),
	}
	if s := c.now.Load(); s != nil && !s.ended.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.Transport = s.by; s.instead != nil {
			st.Instead = s.instead.Error()
		}
		st.Connected, st.Whole, st.Entries, st.MapBytes, st.Epoch = true, s.m.Whole(), s.m.Len(), s.m.Bytes(), s.m.Epoch()
	}
	return st
}
