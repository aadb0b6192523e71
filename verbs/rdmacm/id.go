package rdmacm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// cmID is one id of librdmacm: a connection, a listener, or a search for a
// peer.
type cmID struct {
	life  life.Life
	cm    *CM
	id    cgo.CMID
	token uint64

	steps  chan cgo.CMEvent // ends of the steps that a call waits for
	closed chan struct{}    // closed when Close begins
	down   chan struct{}    // closed at the first event that ends the id's use
	once   sync.Once
	shut   sync.Once
	cause  error // why down is closed

	request func(*cgo.CMEvent) // a listener's, set before it listens

	watch sync.Mutex
	ended func() // a connection's: called when down closes
}

var tokens atomic.Uint64

// newID makes an id in a port space.
func (m *CM) newID(kind string, portSpace int) (*cmID, error) {
	i := m.prepareID()
	if err := i.life.Attach("id", life.Label("cm "+kind), &m.life); err != nil {
		return nil, err
	}
	id, err := cgo.CMCreateID(m.channel, i.token, portSpace)
	if err != nil {
		m.forgetID(i)
		return nil, operr.New("create", i.life.Label, err)
	}
	i.id = id
	return i, nil
}

// adoptID takes over the id of a new connection request. It is called by the
// reader of events, before the first event of that id.
func (m *CM) adoptID(id cgo.CMID) (*cmID, error) {
	i := m.prepareID()
	if err := i.life.Attach("id", life.Label("cm request"), &m.life); err != nil {
		m.drop(i)
		return nil, err
	}
	i.id = id
	cgo.CMSetToken(id, i.token)
	return i, nil
}

func (m *CM) prepareID() *cmID {
	i := &cmID{cm: m, token: tokens.Add(1), steps: make(chan cgo.CMEvent, 4),
		closed: make(chan struct{}), down: make(chan struct{})}
	m.mu.Lock()
	m.ids[i.token] = i
	m.mu.Unlock()
	return i
}

func (m *CM) drop(i *cmID) {
	m.mu.Lock()
	delete(m.ids, i.token)
	m.mu.Unlock()
}

func (m *CM) forgetID(i *cmID) {
	m.drop(i)
	m.life.RemoveChild("id")
}

// close destroys the id; calls that wait on it end with [verbs.ErrClosed]. It
// cannot hang: see [cgo.CMDestroyID].
func (i *cmID) close() error {
	return i.life.Close("id", i.interrupt, func() error {
		i.cm.drop(i)
		return cgo.CMDestroyID(i.id)
	})
}

// interrupt ends calls that wait on the id, now and later.
func (i *cmID) interrupt() { i.shut.Do(func() { close(i.closed) }) }

func (i *cmID) interrupted() bool {
	select {
	case <-i.closed:
		return true
	default:
		return false
	}
}

// on takes an event; it runs in the reader of events and does not wait.
func (i *cmID) on(ev *cgo.CMEvent) {
	switch typ := event(ev.Type); typ {
	case eventConnectRequest:
		i.request(ev)
	case eventDisconnected:
		// The peer waits for this reply; if the event is the peer's reply,
		// the call fails and nothing is lost.
		i.life.With("disconnect", func() error { return cgo.CMDisconnect(i.id) })
		i.end(ErrDisconnected)
	case eventDeviceRemoval:
		i.life.With("look at", func() error { deviceRemoved(cgo.CMContext(i.id)); return nil })
		i.end(ErrDeviceRemoved)
	case eventAddrChange:
		// The hardware address behind the local one has changed, as in the failover of a bond.
		// Connections stay where they were.
		i.cm.log.Warn("address change", "id", i.life.Label)
	case eventTimewaitExit:
	case eventUnreachable:
		if i.connected() {
			// The neighbour has another hardware address now: packets of this
			// connection do not reach it.
			i.end(verbs.ErrUnreachable)
			return
		}
		fallthrough
	default:
		select {
		case i.steps <- *ev:
		default:
			i.cm.log.Error("unexpected event", "id", i.life.Label, "event", typ)
		}
	}
}

func (i *cmID) connected() bool {
	i.watch.Lock()
	defer i.watch.Unlock()
	return i.ended != nil
}

func (i *cmID) end(cause error) {
	i.once.Do(func() {
		i.watch.Lock()
		defer i.watch.Unlock()
		i.cause = cause
		close(i.down)
		if i.ended != nil {
			i.ended()
		}
	})
}

// await waits for the end of a step that was begun. Any other end than the
// wanted one is an error.
func (i *cmID) await(ctx context.Context, op string, want event) (*cgo.CMEvent, error) {
	select {
	case ev := <-i.steps:
		return i.stepped(op, want, &ev)
	case <-i.closed:
		return nil, operr.New(op, i.life.Label, verbs.ErrClosed)
	case <-i.down:
		// The step may have ended before: a peer that connects and leaves at
		// once was there all the same.
		select {
		case ev := <-i.steps:
			return i.stepped(op, want, &ev)
		default:
			return nil, operr.New(op, i.life.Label, i.cause)
		}
	case <-ctx.Done():
		return nil, operr.New(op, i.life.Label, ctx.Err())
	}
}

// stepped judges the event that ended a step.
func (i *cmID) stepped(op string, want event, ev *cgo.CMEvent) (*cgo.CMEvent, error) {
	if event(ev.Type) != want {
		return nil, operr.New(op, i.life.Label, stepError(ev))
	}
	return ev, nil
}

// do is one call into librdmacm within the id's lifetime.
func (i *cmID) do(op string, f func() error) error {
	return i.life.With(op, func() error { return operr.New(op, i.life.Label, f()) })
}

// step is a call and the event that ends it.
func (i *cmID) step(ctx context.Context, op string, want event, f func() error) (*cgo.CMEvent, error) {
	if err := i.do(op, f); err != nil {
		return nil, err
	}
	return i.await(ctx, op, want)
}

// stepTimeout is how long the kernel tries, in ms; the context ends a wait for
// it sooner.
func stepTimeout(ctx context.Context) int {
	const longest = 60 * time.Second
	if end, ok := ctx.Deadline(); ok {
		return int(max(min(time.Until(end), longest), time.Millisecond) / time.Millisecond)
	}
	return int(longest / time.Millisecond)
}
