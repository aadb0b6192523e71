package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

var connectionTests = []selfTest{
	{feature: "connections by librdmacm", run: tryCM},
	{feature: "datagram service, multicast", run: tryDatagramService},
	{feature: "net.Conn over RC, zero-copy calls", run: tryStream},
}

// manager opens a connection manager, and returns the addresses of both ends.
func (b *bench) manager() (m *rdmacm.CM, here, there netip.Addr, err error) {
	if here, err = b.addr(b.here); err != nil {
		return
	}
	if there, err = b.addr(b.there); err != nil {
		return
	}
	m, err = rdmacm.Open(rdmacm.Config{})
	_, err = keep(b, m, err)
	return
}

func (b *bench) listen(m *rdmacm.CM, at netip.Addr, cfg rdmacm.ListenConfig) (*rdmacm.Listener, error) {
	l, err := m.Listen(netip.AddrPortFrom(at, 0).String(), cfg)
	return keep(b, l, err)
}

// setup makes the queue pair of a connection, with receives posted.
func (b *bench) setup(e **end, typ verbs.QPType, recvs int) func(*rdmacm.Setup) error {
	return func(s *rdmacm.Setup) (err error) {
		if *e, err = b.baseOn(s.Device, verbs.CQConfig{}); err != nil {
			return err
		}
		if err := (*e).join(s.GID, verbs.QPConfig{Type: typ}); err != nil {
			return err
		}
		s.QP = (*e).qp
		if recvs == 0 {
			return nil
		}
		return (*e).recv(recvs, 256)
	}
}

// tryCM is rejected once, then connects and sends a message.
func tryCM(b *bench) (string, error) {
	m, here, there, err := b.manager()
	if err != nil {
		return "", err
	}
	l, err := b.listen(m, there, rdmacm.ListenConfig{})
	if err != nil {
		return "", err
	}
	var x, y *end
	served := make(chan error, 1)
	go func() {
		r, err := l.Accept(b.ctx)
		if err == nil {
			err = r.Reject([]byte("not yet"))
		}
		if err == nil {
			r, err = l.Accept(b.ctx)
		}
		if err == nil {
			var c *rdmacm.Conn
			c, err = r.Accept(b.ctx, rdmacm.ConnConfig{Setup: b.setup(&y, verbs.RC, 1)})
			_, err = keep(b, c, err)
		}
		served <- err
	}()
	cfg := rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: b.setup(&x, verbs.RC, 0)}, Local: netip.AddrPortFrom(here, 0)}
	_, err = m.Dial(b.ctx, l.Addr().String(), cfg)
	var rejected *rdmacm.RejectedError
	switch {
	case err == nil:
		return "", fmt.Errorf("%w: a rejected request is connected", errData)
	case !errors.As(err, &rejected):
		return "", err
	case !bytes.HasPrefix(rejected.PrivateData, []byte("not yet")):
		return "", fmt.Errorf("%w: private data %q", errData, rejected.PrivateData)
	}
	c, err := m.Dial(b.ctx, l.Addr().String(), cfg)
	_, err = keep(b, c, err)
	if err := errors.Join(err, <-served); err != nil {
		return "", err
	}
	fill(x.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) { b.Send(1, verbs.Signaled, x.mr.SGE(0, 64)) }); err != nil {
		return "", err
	}
	if _, err := y.done(1); err != nil {
		return "", err
	}
	return "", sameBytes("what was sent", y.mr.Bytes()[:64], x.mr.Bytes()[:64])
}

// tryDatagramService joins no group: switches and the subnet manager would
// see it.
func tryDatagramService(b *bench) (string, error) {
	m, here, there, err := b.manager()
	if err != nil {
		return "", err
	}
	l, err := b.listen(m, there, rdmacm.ListenConfig{Type: verbs.UD})
	if err != nil {
		return "", err
	}
	var x, y *end
	served := make(chan error, 1)
	go func() {
		r, err := l.Accept(b.ctx)
		if err == nil {
			err = r.AcceptUD(rdmacm.ConnConfig{Setup: b.setup(&y, verbs.UD, 1)})
		}
		served <- err
	}()
	peer, err := m.DialUD(b.ctx, l.Addr().String(), rdmacm.DialConfig{
		ConnConfig: rdmacm.ConnConfig{Setup: b.setup(&x, verbs.UD, 0)}, Local: netip.AddrPortFrom(here, 0)})
	_, err = keep(b, peer, err)
	if err := errors.Join(err, <-served); err != nil {
		return "", err
	}
	return "no multicast group was joined: the network would see it", x.sendsTo(peer.Destination(), y)
}

// tryStream has a message go to and fro over a net.Conn.
func tryStream(b *bench) (string, error) {
	m, here, there, err := b.manager()
	if err != nil {
		return "", err
	}
	cfg := stream.Config{Buffer: 64 << 10, Pending: 1}
	l, err := stream.Listen(m, netip.AddrPortFrom(there, 0).String(), cfg)
	if _, err := keep(b, l, err); err != nil {
		return "", err
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			b.defers(c.Close)
			_, err = io.Copy(c, c)
		}
		served <- err
	}()
	cfg.Dial.Local = netip.AddrPortFrom(here, 0)
	c, err := stream.Dial(b.ctx, m, l.Addr().String(), cfg)
	if _, err := keep(b, c, err); err != nil {
		closed := l.Close()
		<-served // no connection came, or what came is of no use
		return "", errors.Join(err, closed)
	}
	deadline, _ := b.ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	want := make([]byte, 100_000) // more than a ring
	fill(want)
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		written <- err
	}()
	got := make([]byte, len(want))
	_, err = io.ReadFull(c, got)
	if err := errors.Join(err, <-written); err != nil {
		return "", err
	}
	if err := errors.Join(sameBytes("what came back", got, want), echoInPlace(c)); err != nil {
		return "", err
	}
	return "", errors.Join(c.CloseWrite(), <-served)
}

// echoInPlace has a message go to and fro in the stream's own buffers.
func echoInPlace(c *stream.Conn) error {
	out, err := c.Reserve(64)
	if err != nil {
		return err
	}
	fill(out)
	want := bytes.Clone(out)
	if err := c.Commit(len(out)); err != nil {
		return err
	}
	for len(want) > 0 { // it can come in pieces
		in, err := c.Peek()
		if err != nil {
			return err
		}
		n := min(len(in), len(want))
		if err := errors.Join(sameBytes("what came back in place", in[:n], want[:n]), c.Discard(n)); err != nil {
			return err
		}
		want = want[n:]
	}
	return nil
}
