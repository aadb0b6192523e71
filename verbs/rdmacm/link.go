package rdmacm

import (
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	serving "github.com/goverbs/goverbs/verbs/internal/serve"
)

// DialLink is [verbs.DialLink] without TCP: the connection manager connects to a
// program at "host:port" that calls [CM.ServeLinks]. What the peer offers comes with
// the connection, which has little room: this side's [verbs.Offer] has 52 bytes, the
// server's 192, and a region takes 20 of them.
//
// The connection manager decides GID, MTU and path, whatever cfg says. Of cfg.Connect it
// uses Retries, RNRRetries, AckTimeout and MaxReads. The queue pair is RC. When the peer
// closes its end, or its program dies, the queue pair ends here too, and [verbs.QP.Err]
// matches [ErrDisconnected]. The loss of the peer's host is noticed after cfg.QP.KeepAlive,
// and the error matches [verbs.ErrUnreachable]; if the peer's queue pair does not allow
// [verbs.RemoteWrite] there is no keep-alive.
func (m *CM) DialLink(ctx context.Context, address string, cfg verbs.LinkConfig) (*verbs.Link, error) {
	l := link{cfg: cfg}
	dial := DialConfig{ConnConfig: l.config(MaxRequestData)}
	if cfg.Dialer != nil && cfg.Dialer.LocalAddr != nil {
		if a, ok := cfg.Dialer.LocalAddr.(*net.TCPAddr); ok {
			dial.Local = a.AddrPort()
		}
	}
	return l.connected(m.Dial(ctx, address, dial))
}

// ServeLinks is [verbs.ServeLinks] for clients that call [CM.DialLink].
func (m *CM) ServeLinks(ctx context.Context, l *Listener, cfg verbs.LinkConfig, serve func(context.Context, *verbs.Link) error, failed func(net.Addr, error)) error {
	defer l.Close()
	return serving.Clients(ctx, func(ctx context.Context) (func(context.Context), error) {
		r, err := l.Accept(ctx)
		return func(ctx context.Context) {
			made := link{cfg: cfg}
			link, err := made.connected(r.Accept(ctx, made.config(MaxAcceptData)))
			if err == nil {
				err = serving.Link(ctx, link, serve)
			}
			serving.Tell(ctx, failed, net.TCPAddrFromAddrPort(r.RemoteAddr()), err, ErrDisconnected)
		}, err
	})
}

// link is a link in the making.
type link struct {
	cfg  verbs.LinkConfig
	made *verbs.Link
}

// config returns the config of a connection. Its Setup makes the link's objects.
func (l *link) config(room int) ConnConfig {
	c := &l.cfg.Connect
	return ConnConfig{
		Retries: c.Retries, RNRRetries: c.RNRRetries, AckTimeout: c.AckTimeout, MaxReads: c.MaxReads,
		Setup: func(s *Setup) error {
			if err := l.close(); err != nil { // another address was tried before
				return err
			}
			made, offer, err := driver.PrepareLink(s.Device, s.GID, l.cfg)
			if err != nil {
				return err
			}
			l.made, s.QP, s.peerDecides = made, made.QP(), true
			takesWrites := driver.InitStep(made.QP()).Attr.Access&verbs.RemoteWrite != 0
			s.PrivateData, err = encodeOffer(offer, takesWrites, room)
			return err
		},
	}
}

func (l *link) close() error {
	if l.made == nil {
		return nil
	}
	return l.made.Close()
}

// connected completes the link with its connection, or closes it after an error.
func (l *link) connected(c *Conn, err error) (*verbs.Link, error) {
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	offer, takesWrites, err := decodeOffer(c.PrivateData())
	driver.Connected(l.made, c, verbs.Endpoint{Type: verbs.RC, Regions: offer.Regions, Data: offer.Data})
	if err != nil {
		return nil, errors.Join(operr.New("link with", c.RemoteAddr().String(), err), l.close())
	}
	if takesWrites {
		driver.KeepAlive(l.made.QP())
	}
	return l.made, nil
}
