package srd

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Endpoint sends and receives reliable datagrams. Methods may be called from any number
// of goroutines. Data that is sent belongs to the endpoint until its status is known, and a
// received [Message] to the program until [Endpoint.Release]. [Status.Err] is the error of a
// status; after Close all calls return [verbs.ErrClosed].
type Endpoint struct {
	cfg     Config
	logs    *slog.Logger   // at most a line of each message in a logPause
	gid     verbs.GIDEntry // as it was when the endpoint was opened
	addr    Addr
	d       *verbs.Dispatcher
	handles addressHandles
	driver  driver
	start   time.Time

	mu       sync.Mutex // guards all that follows
	e        machine
	requests requests
	pool     pool
	inbox    ring[Message]
	readers  sleepers
	queues   map[*SendQueue]bool
	main     *SendQueue
	failure  error
	polls    pollers
	badKeys  uint64        // greetings with another key that were logged
	mendAt   time.Duration // when serve tries again to repair the device, or 0
	unmended uint8         // times in a row that it could not

	stop    context.CancelFunc
	served  sync.WaitGroup
	closing sync.Mutex
	closed  atomic.Bool
}

// Addr returns the address at which the endpoint receives.
func (ep *Endpoint) Addr() Addr { return ep.addr }

// MaxPacket returns how many bytes of a message fit into one packet. Fewer fit into a packet to
// a peer that has a link with a smaller MTU.
func (ep *Endpoint) MaxPacket() int { return ep.e.Fragment() }

// now returns the time of the engine's clock.
func (ep *Endpoint) now() time.Duration { return time.Since(ep.start) }

// fail ends all calls: the device is of no use any more.
func (ep *Endpoint) fail(err error) {
	ep.mu.Lock()
	if ep.failure == nil {
		ep.failure = err
	}
	ep.wakeAll()
	ep.mu.Unlock()
}

// wakeAll wakes all goroutines that wait. ep.mu must be held.
func (ep *Endpoint) wakeAll() {
	ep.readers.wake(&ep.polls)
	for q := range ep.queues {
		q.waiting.wake(&ep.polls)
	}
	for _, r := range ep.requests.all {
		ep.polls.wake(&r.waiter)
	}
}

func (ep *Endpoint) open() error {
	if ep.closed.Load() {
		return verbs.ErrClosed
	}
	return ep.failure
}

// Close ends the endpoint and all calls on it. Messages that are not settled are given up
// and get no status: they may have been delivered. Their data belongs to the program when
// Close returns. Closing twice is not an error.
func (ep *Endpoint) Close() error {
	ep.closing.Lock()
	defer ep.closing.Unlock()
	if ep.closed.Swap(true) {
		return nil
	}
	ep.mu.Lock()
	ep.wakeAll()
	ep.mu.Unlock()
	ep.stop()
	ep.d.Wake(&ep.polls.own)
	ep.served.Wait()
	ep.polls.alarm.Stop()
	return ep.closeDriver()
}

func (ep *Endpoint) closeDriver() error {
	if ep.driver == nil {
		return nil
	}
	return ep.driver.close()
}
