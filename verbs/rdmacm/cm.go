package rdmacm

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/life"
	"github.com/goverbs/goverbs/verbs/internal/pollfd"
)

// Config configures the connection manager. The zero value is fine.
type Config struct {
	// Logger receives events that no call waits for: changed addresses, devices that go
	// away, and the events of the devices; nil: silent.
	Logger *slog.Logger
}

// CM is the connection manager: it finds devices by IP address and connects
// queue pairs, over the protocol of the InfiniBand specification that
// librdmacm speaks. No call blocks a thread: one goroutine takes all events in
// the network poller. All methods are safe for concurrent use.
//
// The devices of a CM ([CM.Device], [Setup]) are not those of [verbs.Open], even
// if their names are the same: objects made on one cannot be used with the
// other.
type CM struct {
	life    life.Life
	channel cgo.CMChannel
	file    *os.File
	log     *slog.Logger
	done    chan struct{} // closed when the reader of events has ended

	mu      sync.Mutex
	ids     map[uint64]*cmID // by token
	devs    map[*device]bool // of which this CM holds a share
	running int              // functions of Linger
	ended   sync.Cond        // one of them; its lock is mu
}

// Open opens the connection manager. Without the kernel's part of it
// (module rdma_ucm) that is [verbs.ErrUnsupported].
func Open(cfg Config) (*CM, error) {
	channel, fd, err := cgo.CMCreateChannel()
	if err != nil {
		return nil, openError(err)
	}
	m := &CM{channel: channel, log: cfg.Logger, done: make(chan struct{}),
		ids: make(map[uint64]*cmID), devs: make(map[*device]bool)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.ended.L = &m.mu
	m.life.Label = life.Label("cm")
	m.file, err = pollfd.Open(fd, m.life.Label)
	if err != nil {
		cgo.CMDestroyChannel(channel)
		return nil, operr.New("watch", m.life.Label, err)
	}
	conn, err := m.file.SyscallConn()
	if err != nil {
		cgo.CMDestroyChannel(channel)
		return nil, errors.Join(operr.New("watch", m.life.Label, err), m.file.Close())
	}
	go m.read(conn)
	return m, nil
}

// Logger returns the logger of the config, or one that discards.
func (m *CM) Logger() *slog.Logger { return m.log }

func openError(err error) error {
	switch {
	case errors.Is(err, syscall.ENODEV):
		return operr.New("open", "connection manager", operr.Class(verbs.ErrNoDevice, err))
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EPERM):
		return operr.New("open", "connection manager", operr.Class(verbs.ErrUnsupported, err), "is module rdma_ucm loaded, and /dev/infiniband/rdma_cm there?")
	case errors.Is(err, syscall.EACCES):
		return operr.New("open", "connection manager", err, "no access to /dev/infiniband/rdma_cm")
	}
	return operr.New("open", "connection manager", err)
}

// Close closes the connection manager. It is refused with [verbs.ErrInUse] while a
// connection, a listener, a request without a reply, a call, or anything
// made on one of its devices is open. Connections that were closed may still be saying
// goodbye to their peers; Close waits for that, a few seconds at most. Closing twice is
// not an error.
func (m *CM) Close() error {
	m.mu.Lock()
	for m.running > 0 {
		m.ended.Wait()
	}
	m.mu.Unlock()
	return m.life.Close("cm", nil, func() error {
		for d := range m.devs { // no call is under way any more
			if err := d.release(); err != nil {
				return err
			}
			delete(m.devs, d)
		}
		m.file.Close()
		<-m.done
		cgo.CMDestroyChannel(m.channel)
		return nil
	})
}

// Linger runs f in a goroutine, and [CM.Close] waits for it. It is for what packages on
// connections have left to do when one closes, such as a goodbye to a peer that may be gone.
func Linger(m *CM, f func()) {
	m.mu.Lock()
	m.running++
	m.mu.Unlock()
	go func() {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.running--
			m.ended.Broadcast()
		}()
		f()
	}()
}

// read takes all events until the channel closes.
func (m *CM) read(conn syscall.RawConn) {
	defer close(m.done)
	var ev cgo.CMEvent
	for {
		var ok bool
		var evErr error
		err := conn.Read(func(uintptr) bool {
			ok, evErr = cgo.CMTake(m.channel, &ev)
			return ok || evErr != nil
		})
		if err != nil {
			return
		}
		if evErr != nil {
			// An event that librdmacm could not make sense of; it has dropped it.
			m.log.Error("connection manager event", "err", evErr)
			continue
		}
		m.dispatch(&ev)
	}
}

// dispatch hands an event to its id. The event is acknowledged already, so its
// id may be gone by now: tokens are not used twice, addresses are.
func (m *CM) dispatch(ev *cgo.CMEvent) {
	m.mu.Lock()
	id := m.ids[ev.Token]
	m.mu.Unlock()
	switch {
	case id != nil:
		id.on(ev)
	case event(ev.Type) == eventConnectRequest:
		// Its listener has closed since.
		if err := errors.Join(cgo.CMReject(ev.ID, nil), cgo.CMDestroyID(ev.ID)); err != nil {
			m.log.Debug("refuse connection request", "err", err)
		}
	}
}

// Port spaces (enum rdma_port_space).
const (
	portSpaceTCP = 0x0106 // connections
	portSpaceUDP = 0x0111 // datagrams
)

// UDPQKey is the queue key of UD queue pairs that the connection manager connects, and of
// multicast groups.
const UDPQKey = 0x01234567
