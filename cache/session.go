package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Client is a client of one server. It is safe for any number of goroutines. Keys and values that
// are passed in are the caller's again when a call returns. A change of which the outcome is not
// known fails with [ErrOutcomeUnknown], and a call without a connection with [ErrUnavailable].
type Client struct {
	address string
	id      [16]byte // random
	cfg     Config
	placed  func(*place.Message) // is called with each placement of the server; nil: of a client of one server
	ctx     context.Context      // ends with Close
	stop    context.CancelFunc
	keeping chan struct{} // closed when keep returns

	now     atomic.Pointer[session] // nil while there is no connection
	told    atomic.Uint64           // epoch of the last placement that the server sent, and its number in it: the last 8 bits
	mu      sync.Mutex              // of what follows
	changed chan struct{}           // closed when now changes
	failure error                   // of the last attempt to connect
	count   counters
	latency latency.Table
}

// session returns the current session, and waits for one if there is none or it has ended.
func (c *Client) session(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
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

const (
	receives = 64      // frames of the server that may wait: 256 KiB
	maxOut   = 1 << 20 // bytes of requests that may wait to be sent; then others do
	again    = 20 * time.Millisecond
)

// session is a connection to one life of the server: its map, READs and RPCs. When it
// ends it is over for good.
type session struct {
	c        *Client
	begun    time.Time
	link     *verbs.Link
	reads    *verbs.Link
	read     *verbs.Requester
	regions  []verbs.Region // of records
	conn     link.Conn
	by       Transport
	alive    func()          // is called when the server says to wait
	waits    bool            // the server said to wait, by this way or, once there is a session, by a better one
	greeted  bool            // the server has admitted this client
	seal     greet.Seal      // of this greeting
	fallback error           // why there is TCP instead of RDMA
	live     context.Context // ends with the session
	stop     context.CancelFunc
	running  sync.WaitGroup
	over     chan struct{}
	ended    atomic.Bool
	heard    atomic.Bool  // the server has sent something since lookAtMember
	before   uint64       // told of the client, and noPlacement once the server has sent one; of the goroutine that receives
	parts    atomic.Int32 // under way, under the pacer
	through  *through     // what READs go through that have no queue pair here; or nil

	mu      sync.Mutex
	m       *mirror.Mirror
	near    *near         // nil: there is none
	why     error         // why it ended
	first   chan struct{} // closed when the map begins
	readers int           // that hold buffers
	idle    chan struct{} // closed when there are none any more, after the end
	yield   yield
	buffers
	multis  *multi // that are free
	flows   *flow  // likewise
	calls   map[uint64]*call
	unused  *call         // that are not in use
	last    uint64        // call
	out     []byte        // messages to send
	sending bool          // a goroutine writes what it took of them
	posting bool          // or a caller posts it
	unsent  []byte        // what could not be posted goes first
	spare   []byte        // buffer of push
	report  wire.Report   // of appendTold
	room    chan struct{} // closed when they have been taken
	longest int           // value that the server takes; 0: it has not said
	tell    bool          // the server has to hear this client's horizon
	said    wire.Horizon  // that was sent last
	placed  bool          // the server is one of a cluster: READs need its grants, and a miss is asked again
	granter uint64        // the call that asks for a grant; 0: none does
	quiet   hung          // of a member
	watch   *time.Timer   // for lookAtMember; nil if the server is none
	soon    *time.Timer   // for tellRest; nil before the first time
	wake    chan struct{}
}

// run starts to receive and to send.
func (s *session) run() {
	if m := s.c.cfg.mode(); m != wire.Advised && s.by != TCP {
		s.out = wire.AppendMode(s.out, m)
	}
	s.running.Go(func() { s.end(s.receive()) })
	s.running.Go(func() { s.end(s.send()) })
}

// clock returns the local time in ms, since the session began.
func (s *session) clock() int64 { return milliseconds(s.elapsed()) }

// elapsed returns the time since the session began. It costs half of what [time.Now] does.
func (s *session) elapsed() time.Duration { return time.Since(s.begun) }

func milliseconds(d time.Duration) int64 { return int64(d / time.Millisecond) }

// end ends the session. The first cause counts.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endNow(cause)
}

// endIdle ends the session if nothing goes on by it, and reports whether it has ended. After
// that it takes on nothing.
func (s *session) endIdle(cause error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls)+s.readers == 0 {
		s.endNow(cause)
	}
	return s.ended.Load()
}

// endNow is end for callers that hold mu.
func (s *session) endNow(cause error) {
	if s.ended.Swap(true) {
		return
	}
	if s.why = cause; s.c.ctx.Err() != nil {
		s.why = ErrClosed
	}
	s.stop()
	if s.soon != nil {
		s.soon.Stop()
	}
	if s.trim != nil {
		s.trim.Stop()
	}
	if s.watch != nil {
		s.watch.Stop()
	}
	for id, c := range s.calls {
		delete(s.calls, id)
		c.done <- errEnded
	}
	if s.readers == 0 {
		close(s.idle)
	}
	close(s.over)
}

func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// close frees everything, after READs under way and then the users of their memory have ended.
func (s *session) close() error {
	if s.through != nil {
		return s.closeThrough()
	}
	if s.link == nil { // by TCP, or what was made for it has been closed
		s.running.Wait()
		return nil
	}
	err := s.reads.Close()
	<-s.idle
	s.closeBuffers()
	err = errors.Join(err, s.link.Close())
	s.running.Wait()
	return err
}

// enter and leave enclose all use of registered memory. mu must be held.
func (s *session) enter() (mirror.Section, bool) {
	if s.ended.Load() {
		return mirror.Section{}, false
	}
	s.readers++
	return s.m.Enter(), true
}

func (s *session) leave(sec mirror.Section) {
	s.m.Leave(sec)
	s.readers--
	if s.readers == 0 && s.ended.Load() {
		close(s.idle)
	}
}

// receive processes the server's messages until the connection fails or one is malformed.
func (s *session) receive() error {
	var deltas wire.Deltas
	var chunk wire.Chunk
	for {
		b, err := s.conn.Next(s.live)
		if err != nil {
			return err
		}
		if !s.heard.Load() { // it is shared
			s.heard.Store(true)
		}
		h, err := wire.ReadHeader(b)
		if err != nil {
			return err
		}
		switch h.Kind {
		case wire.KindMap:
			err = s.begin(b)
		case wire.KindChunk:
			if err = chunk.Read(b); err == nil {
				s.mu.Lock()
				err = s.m.Chunk(&chunk)
				s.mu.Unlock()
			}
		case wire.KindDeltas:
			if err = deltas.Read(b); err == nil {
				s.mu.Lock()
				err = s.m.Deltas(&deltas)
				s.m.Told(deltas.Clock, s.clock())
				s.tell = true
				if len(deltas.List) == 0 { // the server wants to know; otherwise the next RPC tells it
					s.signal()
					s.tellAgain()
				}
				s.askClock()
				s.mu.Unlock()
			}
		case wire.KindReply:
			if err = s.replied(b); s.by == RDMA {
				runtime.Gosched() // to the caller, before this goroutine spins
			}
		case wire.KindTarget:
			err = s.toldTarget(b)
		case wire.KindPlacement:
			err = s.toldPlacement(b)
		default:
			err = wire.Malformed
		}
		if err != nil {
			return fmt.Errorf("message of the server: %w", err)
		}
	}
}

// begin processes the beginning of a full sync, or one alone. The server wrote the first one, and read its
// clock for it, after this session began: it counts as a reply to what was sent then.
func (s *session) begin(b []byte) error {
	m, err := wire.ReadMap(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.m.Epoch() == 0
	if !first && m.Epoch != s.m.Epoch() {
		return wire.OtherEpoch
	}
	s.m.Begin(&m)
	if s.longest = int(m.Longest); first {
		s.m.Replied(m.Clock, 0, s.clock())
		if s.placed = m.Granted; s.placed {
			s.watchMember()
			if s.by != TCP {
				s.askGrant()
			}
		}
		close(s.first)
	}
	s.m.Told(m.Clock, s.clock())
	if m.Alone { // the server wants to know
		s.tell = true
		s.signal()
		s.tellAgain()
	}
	return nil
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
