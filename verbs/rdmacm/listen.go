package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// ListenConfig configures a listener. The zero value is fine.
type ListenConfig struct {
	// Type is RC, which 0 means too, or UD for the service that tells peers a
	// queue pair number for datagrams.
	Type verbs.QPType
	// Backlog is how many requests may wait for Accept; further ones are
	// rejected. 0 means 128.
	Backlog int
	// TOS is the type of service of the packets of accepted connections.
	TOS uint8
}

// Listener receives connection requests. Its methods are safe for concurrent
// use.
type Listener struct {
	ids  []*cmID // one for each family of addresses
	typ  verbs.QPType
	addr netip.AddrPort

	mu       sync.Mutex
	requests chan *Request
	shut     bool
	closing  sync.Mutex
}

// Listen listens at "host:port". An empty host means all devices and, where the
// host has IPv6, both families. Port 0 chooses one: see [Listener.Addr]. Of a
// name with several addresses the first is taken.
func (m *CM) Listen(address string, cfg ListenConfig) (*Listener, error) {
	all, err := lookUpAddress(context.Background(), address)
	if err != nil {
		return nil, err
	}
	space := portSpaceTCP
	switch cfg.Type {
	case verbs.UD:
		space = portSpaceUDP
	case 0, verbs.RC:
		cfg.Type = verbs.RC
	default:
		return nil, operr.New("listen at", address, verbs.ErrAttributes, "type ", cfg.Type)
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = 128
	}
	if cfg.Backlog < 0 {
		return nil, operr.New("listen at", address, verbs.ErrAttributes, "backlog ", cfg.Backlog)
	}
	if at := all[0].Addr(); at.IsLoopback() {
		// The kernel takes it, and no connection comes.
		if _, err := verbs.LookupAddr(context.Background(), at); err != nil {
			return nil, operr.New("listen at", address, err, "RDMA devices are not reached by the loopback interface: listen at the address of one, or at all")
		}
	}
	l := &Listener{typ: cfg.Type, requests: make(chan *Request, cfg.Backlog)}
	if l.addr, err = l.listen(m, space, all[0], &cfg); err == nil && len(all) > 1 && all[0].Addr().IsUnspecified() {
		_, err = l.listen(m, space, netip.AddrPortFrom(all[1].Addr(), l.addr.Port()), &cfg)
		if noIPv6(err) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(operr.New("listen at", address, err), l.closeIDs())
	}
	return l, nil
}

// noIPv6 reports whether err means that the host lacks the family.
func noIPv6(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV)
}

// listen adds an id that listens at one address, and returns the address.
func (l *Listener) listen(m *CM, space int, at netip.AddrPort, cfg *ListenConfig) (netip.AddrPort, error) {
	local, err := sockAddr(at)
	if err != nil {
		return netip.AddrPort{}, err
	}
	id, err := m.newID("listener", space)
	if err != nil {
		return netip.AddrPort{}, err
	}
	id.request = func(ev *cgo.CMEvent) { l.arrived(m, ev) }
	var bound cgo.SockAddr
	err = id.do("listen at", func() error {
		if cfg.TOS != 0 {
			if err := cgo.CMSetTOS(id.id, cfg.TOS); err != nil {
				return err
			}
		}
		if at.Addr() == netip.IPv6Unspecified() {
			// The port of IPv4 is another id's.
			if err := cgo.CMSetIPv6Only(id.id, true); err != nil {
				return err
			}
		}
		if err := cgo.CMBind(id.id, &local); err != nil {
			return err
		}
		err := cgo.CMListen(id.id, cfg.Backlog)
		bound, _ = cgo.CMAddrs(id.id)
		return err
	})
	if err != nil {
		return netip.AddrPort{}, errors.Join(err, id.close())
	}
	l.ids = append(l.ids, id)
	return bound.AddrPort(), nil
}

func (l *Listener) closeIDs() error {
	var err error
	for _, id := range l.ids {
		err = errors.Join(err, id.close())
	}
	return err
}

// down is closed when the listener's device has gone. The wildcard, with an id
// for each family, has none that could.
func (l *Listener) down() <-chan struct{} { return l.ids[0].down }

// cause returns why down is closed.
func (l *Listener) cause() error { return l.ids[0].cause }

func (l *Listener) label() string { return l.ids[0].life.Label }

// Addr is the address that l listens at; if it listens in both families, that of IPv4.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// arrived runs in the reader of events.
func (l *Listener) arrived(m *CM, ev *cgo.CMEvent) {
	id, err := m.adoptID(ev.ID)
	if err != nil {
		m.log.Warn("connection request", "err", errors.Join(err, cgo.CMDestroyID(ev.ID)))
		return
	}
	_, remote := cgo.CMAddrs(ev.ID)
	r := &Request{id: id, typ: l.typ, ev: *ev, remote: remote.AddrPort()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut {
		select {
		case l.requests <- r:
			return
		default:
		}
	}
	if err := r.Reject(nil); err != nil {
		m.log.Warn("reject connection request", "err", err)
	}
}

// Accept waits for a request. Answer it with [Request.Accept], [Request.AcceptUD] or
// [Request.Reject].
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	if err := ctx.Err(); err != nil {
		return nil, operr.New("accept from", l.label(), err)
	}
	select {
	case r, ok := <-l.requests:
		if !ok {
			return nil, operr.New("accept from", l.label(), verbs.ErrClosed)
		}
		return r, nil
	case <-l.down():
		return nil, operr.New("accept from", l.label(), l.cause())
	case <-ctx.Done():
		return nil, operr.New("accept from", l.label(), ctx.Err())
	}
}

// Close ends listening: Accept returns [verbs.ErrClosed], and requests that were not
// accepted are rejected. Closing twice is not an error.
func (l *Listener) Close() error {
	l.closing.Lock() // a second Close waits for the first
	defer l.closing.Unlock()
	l.mu.Lock()
	if !l.shut {
		l.shut = true
		close(l.requests)
	}
	l.mu.Unlock()
	err := l.closeIDs()
	for r := range l.requests {
		// If the client has gone meanwhile, its request cannot be rejected any more.
		if rerr := r.Reject(nil); rerr != nil && !errors.Is(rerr, syscall.EINVAL) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
