package verbs

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/operr"
)

// CMService is what a datagram service says of itself.
type CMService struct {
	QPN         uint32
	PrivateData []byte // padded with zeros to [MaxAcceptDataUD] bytes
}

// LookUp asks the datagram service at "host:port" for its queue pair, as
// [CM.DialUD] does, but makes no queue pair and no address handle: those are up
// to the caller, on whatever device handle. Of cfg it takes Local, TOS and
// PrivateData. A question or an answer that was lost is sent again after
// seconds: who is in a hurry ends ctx and asks anew.
func (m *CM) LookUp(ctx context.Context, address string, cfg DialConfig) (CMService, error) {
	if n := len(cfg.PrivateData); n > MaxRequestDataUD {
		return CMService{}, operr.New("look up", address, ErrAttributes, n, " bytes of private data; at most ", MaxRequestDataUD)
	}
	param := cgo.CMParam{PrivateData: append([]byte(nil), cfg.PrivateData...)}
	var s CMService
	err := m.resolve(ctx, "datagram service", portSpaceUDP, address, &cfg, func(ctx context.Context, id *cmID) error {
		ev, err := id.step(ctx, "look up", cmEstablished, func() error { return cgo.CMConnect(id.id, &param) })
		if err != nil {
			return err
		}
		s = CMService{ev.QPN, privateData(ev)}
		return id.close()
	})
	return s, err
}

// AcceptQPN is [CMRequest.AcceptUD] with the number of a queue pair that works
// already, on whatever device handle. At most [MaxAcceptDataUD] bytes of
// private data go along; the Q_Key does not: the peer takes it to be [UDPQKey],
// unless private data say otherwise.
func (r *CMRequest) AcceptQPN(qpn uint32, private []byte) error {
	switch {
	case r.typ != UD:
		return operr.New("answer", r.id.life.Label, ErrAttributes, "a connection: use Accept")
	case len(private) > MaxAcceptDataUD:
		return operr.New("answer", r.id.life.Label, ErrAttributes, len(private), " bytes of private data; at most ", MaxAcceptDataUD)
	}
	if err := r.answer("answer"); err != nil {
		return err
	}
	param := cgo.CMParam{QPN: qpn, PrivateData: append([]byte(nil), private...)}
	err := r.id.do("answer", func() error { return cgo.CMAccept(r.id.id, &param) })
	return errors.Join(err, r.id.close())
}
