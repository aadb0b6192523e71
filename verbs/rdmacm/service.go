package rdmacm

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Service is what a datagram service reports of itself.
type Service struct {
	QPN         uint32
	PrivateData []byte // padded with zeros to [MaxAcceptDataUD] bytes
}

// LookUp asks the datagram service at "host:port" for its queue pair, as [CM.DialUD]
// does, but makes no queue pair and no address handle: those are up to the caller, on
// whatever device handle. Of cfg it takes Local, TOS and PrivateData. A lost question or
// reply is sent again after seconds. To be faster, end ctx and ask again.
func (m *CM) LookUp(ctx context.Context, address string, cfg DialConfig) (Service, error) {
	if n := len(cfg.PrivateData); n > MaxRequestDataUD {
		return Service{}, operr.New("look up", address, verbs.ErrAttributes, n, " bytes of private data; at most ", MaxRequestDataUD)
	}
	param := cgo.CMParam{PrivateData: append([]byte(nil), cfg.PrivateData...)}
	var s Service
	err := m.resolve(ctx, "datagram service", portSpaceUDP, address, &cfg, func(ctx context.Context, id *cmID) error {
		ev, err := id.step(ctx, "look up", eventEstablished, func() error { return cgo.CMConnect(id.id, &param) })
		if err != nil {
			return err
		}
		s = Service{ev.QPN, privateData(ev)}
		return id.close()
	})
	return s, err
}

// AcceptQPN is [Request.AcceptUD] with the number of a queue pair that works
// already, on whatever device handle. At most [MaxAcceptDataUD] bytes of
// private data go along; the Q_Key does not: the peer takes it to be [UDPQKey],
// unless private data say otherwise.
func (r *Request) AcceptQPN(qpn uint32, private []byte) error {
	switch {
	case r.typ != verbs.UD:
		return operr.New("accept", r.id.life.Label, verbs.ErrAttributes, "a connection: use Accept")
	case len(private) > MaxAcceptDataUD:
		return operr.New("accept", r.id.life.Label, verbs.ErrAttributes, len(private), " bytes of private data; at most ", MaxAcceptDataUD)
	}
	if err := r.finish("accept"); err != nil {
		return err
	}
	param := cgo.CMParam{QPN: qpn, PrivateData: append([]byte(nil), private...)}
	err := r.id.do("accept", func() error { return cgo.CMAccept(r.id.id, &param) })
	return errors.Join(err, r.id.close())
}
