package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// grh is what a UD receive has in front of its message.
const grh = 40

type listener = net.Listener

func listen(ctx context.Context, o *options) (listener, error) {
	if o.server != "" {
		return nil, nil
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(o.bind, strconv.Itoa(o.port)))
}

// connectTCP reaches the peer; a client gives the server some seconds to come
// up.
func connectTCP(ctx context.Context, o *options, ln listener) (net.Conn, error) {
	if ln != nil {
		stop := context.AfterFunc(ctx, func() { ln.Close() })
		defer stop()
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return conn, err
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	if a, err := netip.ParseAddr(o.bind); err == nil {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
	}
	addr := net.JoinHostPort(o.server, strconv.Itoa(o.port))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return conn, err
		}
	}
}

// session is one side of a test, connected.
type session struct {
	o      *options
	p      params
	client bool
	conn   net.Conn

	closers []io.Closer // in the order of their making
	cq      *verbs.CQ   // completions of sends
	rcq     *verbs.CQ   // completions of receives
	qps     []*link

	rest  verbs.Rest
	begun time.Time
}

// link is one queue pair, its buffer and its peer's.
type link struct {
	qp     *verbs.QP
	mr     *verbs.MR
	batch  *verbs.Batch
	recv   *verbs.RecvBatch
	remote verbs.Region
	to     verbs.Dest // UD
}

func open(ctx context.Context, o *options, p params, ln listener) (s *session, err error) {
	s = &session{o: o, p: p, client: o.server != "", begun: time.Now()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.conn, err = connectTCP(ctx, o, ln); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.conn)
	name := o.device
	if name == "" {
		list, err := verbs.Devices()
		if err != nil {
			return s, err
		}
		if len(list) == 0 {
			return s, verbs.ErrNoDevice
		}
		name = list[0].Name
	}
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, dev)
	gid, err := s.gid(dev)
	if err != nil {
		return s, err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return s, err
	}
	s.closers = append(s.closers, pd)
	depth := 2*p.QPs*s.depth() + 16
	if s.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: depth, PollOnly: !p.Events && !oneCPU}); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.cq)
	s.rcq = s.cq
	if p.Test == "send_bw" {
		if s.rcq, err = dev.CreateCQ(verbs.CQConfig{Depth: depth, PollOnly: !p.Events && !oneCPU}); err != nil {
			return s, err
		}
		s.closers = append(s.closers, s.rcq)
	}
	for range p.QPs {
		if err := s.addLink(ctx, pd, gid); err != nil {
			return s, err
		}
	}
	return s, s.barrier(ctx)
}

// depth is how many receives, and how many sends, may be outstanding.
func (s *session) depth() int { return max(s.p.Depth, 16) }

func (s *session) gid(dev *verbs.Device) (verbs.GIDEntry, error) {
	if s.o.gidIndex < 0 {
		return dev.FindGID(verbs.GIDQuery{})
	}
	all, err := dev.GIDs()
	for _, g := range all {
		if int(g.Index) == s.o.gidIndex {
			return g, nil
		}
	}
	return verbs.GIDEntry{}, errors.Join(fmt.Errorf("no GID of index %d on %s", s.o.gidIndex, dev.Name()), err)
}

func (s *session) addLink(ctx context.Context, pd *verbs.PD, gid verbs.GIDEntry) error {
	l := &link{}
	s.qps = append(s.qps, l)
	var err error
	// One slot for what is sent and one for what is received, each beginning on
	// a cache line; the last word of a slot is aligned.
	if l.mr, err = pd.AllocMR(2*s.slot(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}); err != nil {
		return err
	}
	s.closers = append(s.closers, l.mr)
	l.qp, err = pd.CreateQP(verbs.QPConfig{Type: s.p.qpType(), SendCQ: s.cq, RecvCQ: s.rcq, GID: gid,
		MaxSendWR: s.depth(), MaxRecvWR: s.depth(), MaxInline: s.o.inline})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l.qp)
	if l.batch, err = l.qp.NewBatch(l.qp.MaxSendWR()); err != nil {
		return err
	}
	if l.recv, err = l.qp.NewRecvBatch(l.qp.MaxRecvWR()); err != nil {
		return err
	}
	if s.receives() {
		if err := s.postReceives(l, s.depth()); err != nil {
			return err
		}
	}
	local, err := l.qp.Endpoint()
	if err != nil {
		return err
	}
	if s.p.Transport == "UD" && s.p.Size > local.MTU.Bytes() {
		return fmt.Errorf("-s %d: a datagram has at most %d bytes here", s.p.Size, local.MTU.Bytes())
	}
	local.Regions, local.Data = []verbs.Region{l.mr.Region()}, s.p.encode()
	remote, err := verbs.Exchange(ctx, s.conn, local)
	if err != nil {
		return err
	}
	if err := s.p.agree(remote.Data); err != nil {
		return err
	}
	if len(remote.Regions) != 1 {
		return errors.New("the peer sent no memory region")
	}
	l.remote = remote.Regions[0]
	if s.p.Transport == "UD" {
		if err := l.qp.Activate(); err != nil {
			return err
		}
		ah, err := pd.CreateAH(verbs.AHAttr{GID: remote.GID, SGIDIndex: gid.Index, Port: gid.Port})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, ah)
		l.to = verbs.Dest{AH: ah, QPN: remote.QPN, QKey: remote.QKey}
		return nil
	}
	cfg := verbs.ConnectConfig{AckTimeout: verbs.AckTimeout(s.o.timeoutExp).Duration(), MaxReads: s.o.reads}
	for m := verbs.MTU256; s.o.mtu > 0 && m <= verbs.MTU4096; m++ {
		if m.Bytes() == s.o.mtu {
			cfg.MTU = m
		}
	}
	if s.o.mtu > 0 && cfg.MTU == 0 {
		return fmt.Errorf("-m %d: 256, 512, 1024, 2048 or 4096", s.o.mtu)
	}
	return l.qp.Connect(remote, cfg)
}

// slot is the size of one buffer.
func (s *session) slot() int { return (s.p.Size + grh + 63) &^ 63 }

// receives tells whether this side posts receives.
func (s *session) receives() bool {
	switch s.p.Test {
	case "send_lat":
		return true
	case "send_bw":
		return !s.client
	}
	return false
}

// postReceives posts n receives, all into the same slot: nobody looks at the
// data.
func (s *session) postReceives(l *link, n int) error {
	size := s.p.Size
	if s.p.Transport == "UD" {
		size += grh
	}
	for i := range n {
		l.recv.Recv(uint64(i), l.mr.SGE(s.slot(), size))
	}
	_, err := l.recv.Post()
	return err
}

// barrier waits until the peer has come as far.
func (s *session) barrier(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := s.conn.Write([]byte{'.'}); err != nil {
		return fmt.Errorf("the peer is gone: %w", err)
	}
	if _, err := io.ReadFull(s.conn, make([]byte, 1)); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the peer is gone: %w", err)
	}
	return nil
}

// finish keeps both sides until each has all its completions.
func (s *session) finish(ctx context.Context) error { return s.barrier(ctx) }

func (s *session) close() {
	for i := range s.closers {
		s.closers[len(s.closers)-1-i].Close()
	}
	s.closers = nil
}
