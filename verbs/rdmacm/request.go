package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Request is a peer's request to connect.
type Request struct {
	id       *cmID
	typ      verbs.QPType
	ev       cgo.CMEvent
	remote   netip.AddrPort
	finished atomic.Bool
}

// PrivateData is what the peer sent along, padded with zeros.
func (r *Request) PrivateData() []byte { return privateData(&r.ev) }

// RemoteAddr is the address of the peer.
func (r *Request) RemoteAddr() netip.AddrPort { return r.remote }

// finish marks the request as accepted or rejected, and fails if it was already.
func (r *Request) finish(op string) error {
	if r.finished.Swap(true) {
		return operr.New(op, r.id.life.Label, verbs.ErrState, "accepted or rejected already")
	}
	return nil
}

// Accept makes the connection and waits until the peer has it too. Whatever it returns,
// the request is finished. Under a context that has ended already it is rejected.
func (r *Request) Accept(ctx context.Context, cfg ConnConfig) (*Conn, error) {
	if err := r.finish("accept"); err != nil {
		return nil, err
	}
	if r.typ != verbs.RC {
		return nil, errors.Join(operr.New("accept", r.id.life.Label, verbs.ErrAttributes, "datagrams have no connection: use AcceptUD"), r.id.close())
	}
	c, err := (*Conn)(nil), ctx.Err()
	if err == nil {
		c, err = r.accept(ctx, &cfg)
	} else {
		r.id.do("reject", func() error { return cgo.CMReject(r.id.id, nil) })
		err = operr.New("accept", r.id.life.Label, err)
	}
	if err != nil {
		return nil, errors.Join(err, r.id.close())
	}
	return c, nil
}

func (r *Request) accept(ctx context.Context, cfg *ConnConfig) (*Conn, error) {
	i := r.id
	p, err := i.prepare(cfg, verbs.RC, MaxAcceptData)
	if err == nil {
		if err = i.setAckTimeout(cfg.AckTimeout); err != nil {
			err = errors.Join(err, p.close())
		}
	}
	if err != nil {
		i.do("reject", func() error { return cgo.CMReject(i.id, nil) })
		return nil, err
	}
	c := &Conn{id: i, prepared: p, private: r.PrivateData()}
	// The event has the peer's wishes as seen from here.
	p.param.ResponderResources = min(p.param.ResponderResources, r.ev.ResponderResources)
	p.param.InitiatorDepth = min(p.param.InitiatorDepth, r.ev.InitiatorDepth)
	err = i.toRTS(p.setup.QP, int(p.param.ResponderResources), int(p.param.InitiatorDepth), false)
	if err != nil {
		i.do("reject", func() error { return cgo.CMReject(i.id, nil) })
		return nil, errors.Join(err, c.abandon())
	}
	_, err = i.step(ctx, "accept", eventEstablished, func() error { return cgo.CMAccept(i.id, &p.param) })
	if errors.Is(err, ErrDisconnected) {
		// The peer connected and left: its last message of connecting came behind
		// its goodbye, which the kernel may do to messages that arrive together.
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, c.abandon())
	}
	c.watch()
	return c, nil
}

// Reject refuses the request; private reaches the peer in its
// [RejectedError]. At most [MaxRejectData] bytes ([MaxRejectDataUD]).
func (r *Request) Reject(private []byte) error {
	limit := MaxRejectData
	if r.typ == verbs.UD {
		limit = MaxRejectDataUD
	}
	if len(private) > limit {
		return operr.New("reject", r.id.life.Label, verbs.ErrAttributes, len(private), " bytes of private data; at most ", limit)
	}
	if err := r.finish("reject"); err != nil {
		return err
	}
	data := append([]byte(nil), private...)
	err := r.id.do("reject", func() error { return cgo.CMReject(r.id.id, data) })
	return errors.Join(err, r.id.close())
}
