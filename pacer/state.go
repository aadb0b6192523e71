package pacer

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Errors on which a program decides. Those of package verbs come through as they are.
var (
	// ErrClosed: the pacer or the queue pair was closed.
	ErrClosed = verbs.ErrClosed
	// ErrConfig: limits that make no sense.
	ErrConfig = verbs.ErrAttributes
)

// OpError is the failure of one operation on one object, see [verbs.OpError].
type OpError = verbs.OpError

func opError(op, object string, err error) error { return operr.In("pacer", op, object, err) }

// Pacer bounds what the queue pairs that it paces solicit together: a network
// interface is flooded by all of them, not by each. Its methods may be called from
// any number of goroutines.
type Pacer struct {
	start  time.Time
	device string // the name of its device, if For made it

	mu       sync.Mutex
	s        *shaper.Shaper
	requests []request // by the shaper's number
	recvs    []recv
	freeRecv []uint32
	calls    *call // that are not in use
	queues   map[*verbs.CQ]*CQ
	wakes    []*CQ         // with waiters that have to be woken
	admit    []shaper.Flow // of acquisitions: for each class, large ones and small ones
	timer    *time.Timer
	armed    time.Duration // when it goes off; 0: not at all
	reapIn   time.Duration // how long held requests wait before the pacer polls by itself
	came     uint64        // completions so far,
	seen     uint64        // and when it did that last
	held     bool          // by the program,
	linkHeld bool          // and by the link partner
	closed   bool
	done     chan struct{} // closed when it is
	onClose  []func() error
}

func (p *Pacer) now() time.Duration { return time.Since(p.start) }

// QP is a queue pair with paced requests. It has the calls that post to the queue pair, and those
// of its completion queue; others, such as Connect, go to the queue pair itself.
type QP struct {
	*CQ
	p     *Pacer
	qp    *verbs.QP
	cq    *CQ
	room  *verbs.Dispatcher // for what of it may complete at a time
	flow  shaper.Flow
	name  string
	class int
	cfg   FlowConfig

	signalsAll bool // see [verbs.QPConfig]

	// Under the pacer's lock.
	batch   *verbs.Batch
	adding  []shaper.Sub // in batch
	scratch []verbs.SGE
	order   []entry // a ring: requests in the order of posting
	head    uint64
	tail    uint64
	silent  int           // requests in it that are not over, and have no completion
	used    int           // requests under way, or with a completion that was not taken
	vacant  chan struct{} // has a token when there is a place, and a goroutine waits for one
	waiting int
	down    bool
	closing bool // Close is under way, and may be refused
	closed  bool

	ending sync.Mutex // one Close at a time
}

// CQ is a completion queue of paced queue pairs. Its calls are those of [verbs.CQ]:
// each request completes once, whatever it was cut into, under the number that the
// program gave it.
type CQ struct {
	p   *Pacer
	cq  *verbs.CQ
	d   *verbs.Dispatcher
	own func(tag uint64, wc *verbs.WC) // completed, for driver.DispatchOwn

	turn chan struct{} // has a token while a goroutine is in Wait

	// Under the pacer's lock.
	qps        []*QP
	users      int
	ready      []taken // a ring
	head, size int
	waiter     verbs.Waiter
	nobody     verbs.Waiter // waking it wakes the goroutine that polls for all
	waits      bool
	woken      bool // waiters have to be woken: it is in the pacer's list
	delivering bool
	lost       error
	losing     sync.Once
}

type taken struct {
	wc verbs.WC
	q  *QP
}

// request is the driver's part of a command under way.
type request struct {
	work
	qp     *QP
	place  int      // in the order of its queue pair
	wc     verbs.WC // of what failed first, or completed last
	had    bool     // there was one
	failed bool
	call   *call // that waits for it

	sub   shaper.Sub    // granted at once, or of an acquisition
	token chan struct{} // of an acquisition
}

// request returns the driver's part of a command.
func (p *Pacer) request(n shaper.Request) *request {
	for int(n) >= len(p.requests) {
		p.requests = append(p.requests, request{})
	}
	return &p.requests[n]
}

const noSub = shaper.Sub(1<<64 - 1)

// work is a request as the program gave it.
type work struct {
	verbs.WR
	class   int
	length  int
	binding verbs.WindowBinding // for Bind
}

// entry is a request's place in the order of its queue pair.
type entry struct {
	request   shaper.Request
	signaled  bool
	done      bool
	delivered bool
	wc        verbs.WC
	call      *call
}

// call is a request that a goroutine waits for.
type call struct {
	waiter   verbs.Waiter
	wc       verbs.WC
	complete bool
	next     *call // that is not in use
}

// recv is the slot of a posted receive.
type recv struct {
	id  uint64
	q   *QP    // nil: the slot is free
	gen uint64 // counts its uses
}
