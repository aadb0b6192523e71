package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// DialLink is the function [DialLink] without TCP: the connection manager connects
// to a program at "host:port" that calls [CM.ServeLinks]. What the peer offers
// comes with the connection, which has little room: this side's [Offer] has 52
// bytes, the server's 192, and a region takes 20 of them.
//
// Of cfg the connection manager decides GID, MTU and path; Retries, RNRRetries,
// AckTimeout and MaxReads of Connect count. The queue pair is RC. When the peer
// closes its end, or its program dies, the queue pair ends here too, and [QP.Err]
// matches [ErrDisconnected].
func (m *CM) DialLink(ctx context.Context, address string, cfg LinkConfig) (*Link, error) {
	l := &Link{}
	dial := DialConfig{ConnConfig: l.byCM(&cfg, MaxRequestData)}
	if cfg.Dialer != nil && cfg.Dialer.LocalAddr != nil {
		if a, ok := cfg.Dialer.LocalAddr.(*net.TCPAddr); ok {
			dial.Local = a.AddrPort()
		}
	}
	c, err := m.Dial(ctx, address, dial)
	return l.of(c, err)
}

// ServeLinks is the function [ServeLinks] for clients that call [CM.DialLink].
func (m *CM) ServeLinks(ctx context.Context, l *CMListener, cfg LinkConfig, serve func(context.Context, *Link) error, failed func(net.Addr, error)) error {
	defer l.Close()
	var clients sync.WaitGroup
	defer clients.Wait()
	each, stop := context.WithCancel(ctx)
	defer stop()
	for {
		r, err := l.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		clients.Go(func() {
			link := &Link{}
			c, err := r.Accept(each, link.byCM(&cfg, MaxAcceptData))
			if link, err = link.of(c, err); err == nil {
				err = link.serve(each, serve)
			}
			tellFailed(each, failed, net.TCPAddrFromAddrPort(r.RemoteAddr()), err)
		})
	}
}

// byCM is a connection whose Setup makes the link's objects.
func (l *Link) byCM(cfg *LinkConfig, room int) ConnConfig {
	return ConnConfig{
		Retries: cfg.Connect.Retries, RNRRetries: cfg.Connect.RNRRetries, AckTimeout: cfg.Connect.AckTimeout, MaxReads: cfg.Connect.MaxReads,
		Setup: func(s *CMSetup) error {
			if err := l.Close(); err != nil { // another address was tried before
				return err
			}
			l.pd = cfg.PD
			if l.pd == nil {
				pd, err := s.Device.AllocPD()
				if err != nil {
					return err
				}
				l.pd = pd
				l.own(pd)
			}
			offer, err := l.build(cfg, s.GID)
			if err == nil {
				s.QP = l.qp
				s.PrivateData, err = offer.encode(room)
			}
			return err
		},
	}
}

// of is the link when its connection stands, or not.
func (l *Link) of(c *CMConn, err error) (*Link, error) {
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.own(c)
	offer, err := decodeOffer(c.PrivateData())
	if err != nil {
		return nil, errors.Join(opError("link with", c.RemoteAddr().String(), err), l.Close())
	}
	l.peer = Endpoint{Type: RC, Regions: offer.Regions, Data: offer.Data}
	return l, nil
}

// An offer in private data, big endian:
//
//	magic 2 | regions 1 | data length 1 | regions * (address 8, length 8, rkey 4) | data
const (
	offerMagic = 0x474c
	offerFixed = 4
)

func (o *Offer) encode(room int) ([]byte, error) {
	n := offerFixed + len(o.Regions)*regionLen + len(o.Data)
	if n > room || len(o.Regions) > 255 || len(o.Data) > 255 {
		return nil, opError("encode", "offer", ErrAttributes, len(o.Regions), " regions and ", len(o.Data), " bytes of data; there is room for ", room-offerFixed, " bytes, 20 for a region")
	}
	be := binary.BigEndian
	b := be.AppendUint16(make([]byte, 0, n), offerMagic)
	b = append(b, byte(len(o.Regions)), byte(len(o.Data)))
	for _, r := range o.Regions {
		b = be.AppendUint64(b, r.Addr)
		b = be.AppendUint64(b, r.Length)
		b = be.AppendUint32(b, r.RKey)
	}
	return append(b, o.Data...), nil
}

// decodeOffer takes what a stranger may have sent, and zeros behind it.
func decodeOffer(b []byte) (Offer, error) {
	be := binary.BigEndian
	if len(b) < offerFixed || be.Uint16(b) != offerMagic {
		return Offer{}, opError("decode", "offer", ErrMessage, "not a link's")
	}
	regions, data := int(b[2]), int(b[3])
	b = b[offerFixed:]
	if len(b) < regions*regionLen+data {
		return Offer{}, opError("decode", "offer", ErrMessage, regions, " regions and ", data, " bytes of data in ", len(b), " bytes")
	}
	var o Offer
	for range regions {
		o.Regions = append(o.Regions, Region{Addr: be.Uint64(b), Length: be.Uint64(b[8:]), RKey: be.Uint32(b[16:])})
		b = b[regionLen:]
	}
	if data > 0 {
		o.Data = append([]byte(nil), b[:data]...)
	}
	return o, nil
}
