package rdmacm

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
)

// DialConfig configures how to reach a peer. The zero value is fine.
type DialConfig struct {
	ConnConfig
	// Local is the address to connect from; its port may be 0. The zero value means what
	// the routing table says.
	Local netip.AddrPort
	// TOS is the type of service of the packets (DSCP and ECN bits).
	TOS uint8
}

// Dial connects to a listener at "host:port"; the addresses of a name are tried in turn,
// and the error says what became of each. If the peer refuses, the error is a
// [*RejectedError]. If it does not respond, the error is [verbs.ErrUnreachable], after the
// time that the kernel tries (about a minute) or when ctx ends.
func (m *CM) Dial(ctx context.Context, address string, cfg DialConfig) (*Conn, error) {
	var c *Conn
	err := m.resolve(ctx, "connection", portSpaceTCP, address, &cfg, func(ctx context.Context, id *cmID) (err error) {
		c, err = id.connect(ctx, &cfg.ConnConfig)
		return err
	})
	return c, err
}

// resolve calls use with an id that knows the device and the path to an address,
// one address after the other until that succeeds. Ids that it failed with are
// closed.
func (m *CM) resolve(ctx context.Context, kind string, portSpace int, address string, cfg *DialConfig, use func(context.Context, *cmID) error) error {
	return tryEach(ctx, address, func(ctx context.Context, to netip.AddrPort) error {
		id, err := m.newID(kind, portSpace)
		if err != nil {
			return err
		}
		if err := id.findPath(ctx, portSpace, to, cfg); err != nil {
			return operr.Join(operr.New("dial", to.String(), err), id.close())
		}
		if err := use(ctx, id); err != nil {
			return errors.Join(err, id.close())
		}
		return nil
	})
}

func (i *cmID) findPath(ctx context.Context, portSpace int, to netip.AddrPort, cfg *DialConfig) error {
	if err := i.findDevice(ctx, portSpace, to, cfg); err != nil {
		return err
	}
	_, err := i.step(ctx, "resolve route for", eventRouteResolved, func() error {
		return cgo.CMResolveRoute(i.id, stepTimeout(ctx))
	})
	return err
}

func (i *cmID) findDevice(ctx context.Context, portSpace int, to netip.AddrPort, cfg *DialConfig) error {
	remote, err := sockAddr(to)
	if err != nil {
		return err
	}
	var local *cgo.SockAddr
	if cfg.Local.IsValid() {
		l, err := sockAddr(cfg.Local)
		if err != nil {
			return err
		}
		local = &l
	}
	if cfg.TOS != 0 {
		if err := i.do("set type of service of", func() error { return cgo.CMSetTOS(i.id, cfg.TOS) }); err != nil {
			return err
		}
	}
	// Before the route: the peer is sent a time that fits.
	if portSpace == portSpaceTCP {
		if err := i.setAckTimeout(cfg.AckTimeout); err != nil {
			return err
		}
	}
	_, err = i.step(ctx, "resolve address for", eventAddrResolved, func() error {
		return cgo.CMResolveAddr(i.id, local, &remote, stepTimeout(ctx))
	})
	return err
}
