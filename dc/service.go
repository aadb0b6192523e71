package dc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// lookupTime bounds one question to a service. The connection manager repeats a
// lost one after seconds only; the state machine asks again sooner.
const lookupTime = time.Second

// service tells initiators where a target is: it replies at a port, through the
// connection manager, with the control queue pair's number and, as private
// data, the whole address.
type service struct {
	cm     *rdmacm.CM
	listen *rdmacm.Listener
	qpn    uint32
	addr   []byte
	log    *slog.Logger
}

// servicePlace returns where the service of an address listens.
func servicePlace(a Address) netip.AddrPort { return netip.AddrPortFrom(a.GID.Addr(), a.Service) }

func openService(gid verbs.GIDEntry, a Address, log *slog.Logger) (s *service, err error) {
	if gid.Type != verbs.GIDRoCEv2 {
		return nil, opError("open", "service", fmt.Errorf("%w: the GID %v is not an IP address", verbs.ErrUnsupported, gid))
	}
	s = &service{qpn: a.QPN, log: log}
	if s.addr, err = a.MarshalBinary(); err != nil {
		return nil, err
	}
	if s.cm, err = rdmacm.Open(rdmacm.Config{Logger: log}); err != nil {
		return nil, err
	}
	if s.listen, err = s.cm.Listen(servicePlace(a).String(), rdmacm.ListenConfig{Type: verbs.UD}); err != nil {
		return nil, errors.Join(err, s.cm.Close())
	}
	return s, nil
}

// serve replies until ctx ends.
func (s *service) serve(ctx context.Context) {
	for {
		r, err := s.listen.Accept(ctx)
		if err == nil {
			err = r.AcceptQPN(s.qpn, s.addr)
			if err == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("dc: service", "err", err)
		if r == nil {
			return // no more questions come
		}
	}
}

func (s *service) close() error { return errors.Join(s.listen.Close(), s.cm.Close()) }

func askService(ctx context.Context, from verbs.GIDEntry, of Address) (a Address, err error) {
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, cm.Close()) }()
	s, err := cm.LookUp(ctx, servicePlace(of).String(), rdmacm.DialConfig{Local: netip.AddrPortFrom(from.GID.Addr(), 0)})
	if err != nil {
		return a, err
	}
	if len(s.PrivateData) < AddressLen {
		return a, opError("look up", of.String(), ErrAddress)
	}
	if err := a.UnmarshalBinary(s.PrivateData[:AddressLen]); err != nil {
		return a, err
	}
	if a.QPN != s.QPN || a.GID != of.GID || a.Service != of.Service || a.Hardware {
		return a, opError("look up", of.String(), fmt.Errorf("%w: the service is another one's", ErrAddress))
	}
	return a, nil
}
