package cache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// Config configures a client. The zero value is fine.
type Config struct {
	// Dialer connects; nil means a plain one.
	Dialer *net.Dialer
	// PD is the protection domain of the client's queue pairs, and so its device, which must
	// reach the server's. nil means a new one on the device of the connection's own address.
	// Clients may share it. The client does not close it. With an initiator it is for
	// connections without the initiator.
	PD *verbs.PD
	// Connect says how connections behave.
	Connect verbs.ConnectConfig
	// DC is an initiator through which this client READs, instead of by a queue pair to
	// the server. The server must have a target for that (DC in the configuration of
	// package server), which must answer a first READ. Otherwise the client connects as
	// without an initiator, by RDMA or, unless RequireRDMA is set, by TCP; Stats
	// (FallbackReason) and the Logger say why. The client tries the initiator again every
	// RetryRDMA, unless it was closed or the server has no target. RPCs, and the
	// server's messages, go by TCP.
	//
	// Any number of clients may share the initiator. Its device must reach the server's.
	// It does not close with the clients; close it after them, or they go on without it.
	DC *dc.Initiator
	// Tenant and Key authenticate the client to the server, which has to prove the same
	// key. The key does not cross the wire. With nil the server must admit clients
	// without a key. rdmacached takes the content of its key file without surrounding
	// space; so must a program that reads the same file ([bytes.TrimSpace]).
	Tenant string
	Key    []byte
	// RequireRDMA makes the client refuse a server that it can reach only by TCP. By
	// default, where there is no RDMA or the server says to wait for it, it connects by TCP,
	// says so (Stats, Logger) and makes everything an RPC. It tries a better way every
	// RetryRDMA, by default 30 seconds, or as soon as the server allows it, and changes over
	// without an error when it can, unless an operation begun before takes longer than ten
	// seconds.
	RequireRDMA bool
	RetryRDMA   time.Duration
	// MapBytes is how much memory this client's map may take. 0 means that the server
	// decides, by the load: all that the map needs, or no map. Below 0 there is no map.
	// Above 0 the server's advice does not count, and a map that fits is whole: math.MaxInt
	// is a whole map in any case.
	//
	//	        memory               READs of a hit     sent by the server
	//	whole   27 to 30 B a record  1                  20 to 21 B for each change
	//	bound   MapBytes             1 with an entry,   20 to 21 B for each change
	//	                             otherwise 2 or 3
	//	none    none                 2, sometimes 3     70 B, 8 times in a lease
	//	                                                or when memory is short
	//
	// For a key without an entry in a map that is not whole, Get, GetInto, GetMulti and the
	// proxy's gets READ the server's map, without its processor: one bucket of 256 bytes
	// or two, and then the record, unless it is a miss. The server advises against maps
	// when the changes that it sends to all clients cost more than twice what READs of
	// buckets would, and more than 16 MiB/s; a change of the advice applies to clients
	// that are connected. NearBytes needs a map, whatever the server advises.
	MapBytes int
	// MaxRecord is the longest record in bytes that is READ; 0 means 2 MiB. Longer
	// records are fetched by an RPC.
	MaxRecord int
	// Pacer paces records of more than PaceFrom bytes, and what GetMulti READs by one
	// doorbell if that is longer. They are READ in parts, each when the pacer has credit
	// for it. nil means the device's pacer ([pacer.ForDevice]), which has the default limits and
	// is shared by all clients of this process on that device. A paused pacer
	// holds up these READs; if that takes longer than the server's lease, the server cuts
	// this client off. The pacer is not closed with the client.
	Pacer *pacer.Pacer
	// PaceFrom is up to how many bytes are READ without the pacer; 0 means 64 KiB. Below
	// 0 the pacer is not used, and everything is one READ.
	PaceFrom int
	// NearBytes is memory for copies of records that were READ; 0 means none. A copy
	// is returned without a READ as long as the server reports no change. Get, GetInto and
	// GetMulti may then return a record that was changed at most NearStale ago: see the
	// package's documentation. Copies are made one at a time, even for several
	// goroutines.
	NearBytes int
	// NearStale is how long a copy may be out of date; 0 means a second. The client hears
	// from the server at least every sixteenth of its lease, 312 ms by default: with a
	// shorter time copies are of use only when there are changes.
	NearStale time.Duration
	// FailFast makes operations that find no connection fail at once with
	// [ErrUnavailable]. Otherwise they wait for one as long as their contexts allow.
	FailFast bool
	// Spin is how often a goroutine polls for its READ before it parks until there is an
	// event, as in [verbs.CQConfig]: 0 means a few times, below 0 not at all.
	Spin int
	// PollFor is for how long, after that, the client polls for READs and messages of the
	// server while other goroutines run, as in [verbs.CQConfig]: 0 means not at all. It
	// takes the time of idle CPUs.
	PollFor time.Duration
	// Logger is told of connections that end; nil: silent.
	Logger *slog.Logger
}

type counters struct {
	hits, near, probes, forwarded, reads, calls, misses, confirmed, refused, ungranted, grants, sessions, blocked atomic.Uint64
}

// Dial makes a client of the server at an address, "host:port". It returns when the
// client has a connection, even if only part of the map has arrived. From then on the
// client reconnects by itself when it has to; calls wait for that as long as their
// contexts allow.
func Dial(ctx context.Context, address string, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cache: dial %s: %w", address, err)
	}
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
	if len(address) > greet.MaxServer {
		return nil, fmt.Errorf("cache: dial %.100s...: %w: an address has %d bytes at most", address, verbs.ErrAttributes, greet.MaxServer)
	}
	if len(cfg.Tenant) > greet.MaxName || cfg.Key != nil && len(cfg.Key) < greet.MinKey {
		return nil, fmt.Errorf("cache: dial %s: %w: a tenant's name has %d bytes at most, its key %d at least",
			address, verbs.ErrAttributes, greet.MaxName, greet.MinKey)
	}
	cfg.Key = slices.Clone(cfg.Key)
	if cfg.NearBytes > 0 && cfg.MapBytes < 0 {
		return nil, fmt.Errorf("cache: dial %s: %w: copies of records need a map", address, verbs.ErrAttributes)
	}
	if cfg.RetryRDMA < 0 || cfg.NearBytes < 0 || cfg.NearStale < 0 || cfg.MaxRecord < 0 {
		return nil, fmt.Errorf("cache: dial %s: %w: a number below 0", address, verbs.ErrAttributes)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{address: address, cfg: cfg, keeping: make(chan struct{}), changed: make(chan struct{})}
	_, _ = rand.Read(c.id[:]) // never fails
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// entries returns how many entries the map has at most; 0: all.
func (c *Config) entries() int {
	if c.MapBytes == 0 {
		return 0
	}
	return max(c.MapBytes/mirror.EntryBytes, 1) // until the server knows that there is no map
}

// mode returns what the client tells the server of its map.
func (c *Config) mode() wire.Mode {
	switch {
	case c.MapBytes < 0:
		return wire.Probed
	case c.MapBytes > 0:
		return wire.Bounded
	case c.NearBytes > 0:
		return wire.Streamed
	}
	return wire.Advised
}

// Address returns the server's address, as it was passed to Dial.
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
		switch {
		case s.waits: // in the queue now, while all goes by s
			s.waits = false
			retry = time.After(0)
		case s.hopes():
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

// attempt is how long one attempt to connect may take, from when it is this client's turn: a host that does not
// respond is soon tried again, and not at TCP's ever longer intervals.
const attempt = 10 * time.Second

// Why there is no connection: the first attempt has not ended, or took too long.
var (
	errConnecting = errors.New("connecting")
	errNoReply    = fmt.Errorf("no reply within %v", attempt)
)

// again connects, retrying until there is a session; it returns nil when the client closes.
func (c *Client) again() *session {
	pause := backoff.New(10*time.Millisecond, time.Second)
	for {
		ctx, cancel := context.WithCancel(c.ctx)
		limit := time.AfterFunc(attempt, cancel)
		s, err := c.connect(ctx, c.ways(), func() { limit.Reset(attempt) })
		limit.Stop()
		switch w := waited(err); {
		case w != nil:
			err = w
		case err != nil && ctx.Err() != nil:
			err = errNoReply // and not the caller's deadline
		}
		if cancel(); err == nil {
			return s
		}
		c.set(nil, err)
		if pause.Wait(c.ctx) != nil {
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

// unavailable returns ErrUnavailable with the reason: the last connection has ended, or
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

// Stats are counters, and the present state.
type Stats struct {
	Hits           uint64 // found by READs alone
	NearHits       uint64 // returned from a copy, without a READ
	Probes         uint64 // hits and misses found by READs of the server's own map
	Forwarded      uint64 // hits found through the tombstone of an older record
	Reads          uint64 // READs
	Calls          uint64 // RPCs: requests to the server, which replies
	Misses         uint64 // of Get and GetInto
	Confirmed      uint64 // keys not in the map, looked up in the server's or by a call
	Refused        uint64 // READs that found something else than the map says
	Ungranted      uint64 // READs that did not count, since a server of a cluster had granted none any more
	Grants         uint64 // requests for leave to READ, which servers of a cluster grant for less than a TTL
	Sessions       uint64 // connections, one after the other
	Blocked        uint64 // READs through an initiator that failed; for records an RPC followed
	Connected      bool
	Transport      Transport // DC, RDMA or TCP; empty without a connection
	FallbackReason string    // why it is TCP, or, for a client with an initiator, RDMA
	Whole          bool      // the whole map has arrived
	Probing        bool      // there is no map, by MapBytes of [Config] or the advice of the server
	Entries        int       // of the map
	MapBytes       int       // that it takes
	ReadBytes      int       // registered memory that READs go to
	Epoch          uint32    // of the server
	Latencies      []Latency // of operations since Dial
}

// Stats returns what the client did.
func (c *Client) Stats() Stats {
	n := &c.count
	st := Stats{
		Hits: n.hits.Load(), NearHits: n.near.Load(), Probes: n.probes.Load(), Forwarded: n.forwarded.Load(), Reads: n.reads.Load(), Calls: n.calls.Load(), Misses: n.misses.Load(),
		Confirmed: n.confirmed.Load(), Refused: n.refused.Load(), Ungranted: n.ungranted.Load(), Grants: n.grants.Load(), Sessions: n.sessions.Load(), Blocked: n.blocked.Load(),
		Latencies: latency.Load[Latency](&c.latency),
	}
	if s := c.now.Load(); s != nil && !s.ended.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.Transport = s.by; s.fallback != nil {
			st.FallbackReason = s.fallback.Error()
		}
		st.Connected, st.Whole, st.Probing, st.Entries, st.MapBytes, st.Epoch = true, s.m.Whole(), s.m.Alone(), s.m.Len(), s.m.Bytes(), s.m.Epoch()
		st.ReadBytes = s.registered
	}
	return st
}
