package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/verbs"
)

const (
	grhLen = 40 // in front of the message of a UD receive
	page   = 4096
	line   = 64 // cache line
)

// session is one side of one test, connected.
type session struct {
	o       *options
	p       params
	control *control
	client  bool

	closers []io.Closer // in the order of their making
	pd      *verbs.PD
	cq      *verbs.CQ // of sends
	recvCQ  *verbs.CQ // of receives; the same where there are none
	links   []*link
	beat    heartbeat
}

// link is a queue pair, its buffer and its peer's.
type link struct {
	qp     *verbs.QP
	mr     *verbs.MR // an area to send from, one to be written into
	remote verbs.Region
	to     verbs.Destination // UD
	recv   *receiver         // if this side receives
}

func connect(ctx context.Context, h *host, o *options, c *control, p params) (*session, error) {
	s := &session{o: o, p: p, control: c, client: o.server != ""}
	err := s.create(h)
	for i := 0; err == nil && i < p.QPs; i++ {
		err = s.connectLink(ctx, h)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) create(h *host) (err error) {
	if s.pd, err = h.dev.AllocPD(); err != nil {
		return err
	}
	s.closers = append(s.closers, s.pd)
	if s.cq, err = s.newCQ(h, s.sendDepth()); err != nil {
		return err
	}
	s.recvCQ = s.cq
	if s.recvDepth() > 0 {
		s.recvCQ, err = s.newCQ(h, s.recvDepth())
	}
	return err
}

// newCQ makes a queue for n requests of each queue pair. With -e it does not
// spin: that is what -e is about.
func (s *session) newCQ(h *host, n int) (*verbs.CQ, error) {
	cq, err := h.dev.CreateCQ(verbs.CQConfig{Depth: s.p.QPs*n + 1, Spin: -1, PollOnly: !s.p.Events})
	if err == nil {
		s.closers = append(s.closers, cq)
	}
	return cq, err
}

// pingPongDepth is how many sends of a ping-pong may wait for their completion
// to be collected.
const pingPongDepth = 32

func (s *session) sendDepth() int {
	if s.p.bandwidth() {
		return s.o.depth
	}
	return pingPongDepth
}

// recvDepth returns how many receives this side keeps posted.
func (s *session) recvDepth() int {
	if s.p.Test == "send_lat" || s.p.Test == "send_bw" && !s.client {
		return s.o.recvs
	}
	return 0
}

// area returns the size of one half of a link's buffer.
func (s *session) area() int {
	return max(page, (s.p.Size+grhLen+line-1)/line*line)
}

// stride returns the distance between the places of a page that small messages of a
// bandwidth test take in turn, and places how many there are: as in perftest,
// so that a device does not meet the same cache line each time.
func (s *session) stride() (stride, places int) {
	if !s.p.bandwidth() || s.p.Size > page/2 {
		return 0, 1
	}
	stride = (s.p.Size + line - 1) / line * line
	return stride, page / stride
}

// connectLink makes a queue pair and connects it to the one that the peer makes
// at the same time.
func (s *session) connectLink(ctx context.Context, h *host) (err error) {
	l := &link{}
	access := verbs.RemoteRead | verbs.RemoteWrite
	if s.p.Test == "atomic_lat" {
		access |= verbs.RemoteAtomic
	}
	if l.mr, err = s.pd.AllocMR(2*s.area(), verbs.MRConfig{Access: access}); err != nil {
		return err
	}
	s.closers = append(s.closers, l.mr)
	l.qp, err = s.pd.CreateQP(verbs.QPConfig{Type: s.p.qpType(), SendCQ: s.cq, RecvCQ: s.recvCQ, GID: h.gid,
		MaxSendWR: s.sendDepth(), MaxRecvWR: s.recvDepth(), MaxInline: s.o.inline})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l.qp)
	s.links = append(s.links, l)
	if s.recvDepth() > 0 { // before the peer is told where to send
		if l.recv, err = newReceiver(s, l, len(s.links)-1); err != nil {
			return err
		}
		if err := l.recv.post(s.recvDepth()); err != nil {
			return err
		}
	}
	local, err := l.qp.Endpoint()
	if err != nil {
		return err
	}
	local.Regions = []verbs.Region{l.mr.Region()}
	if s.o.reads != 0 {
		local.MaxReads = s.o.reads
	}
	if local.Data, err = s.p.encode(); err != nil {
		return err
	}
	remote, err := verbs.Exchange(ctx, s.control.conn, local)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: it ended before the test", errPeerGone)
		}
		return err
	}
	agreed, err := s.p.agree(remote.Data)
	if err != nil {
		return err
	}
	if len(remote.Regions) != 1 || remote.Regions[0].Length < uint64(2*s.area()) {
		return errors.New("the peer's memory is too small for the test")
	}
	l.remote = remote.Regions[0]
	if s.p.Transport == "UD" {
		return s.address(l, h, remote)
	}
	return l.qp.Connect(remote, verbs.ConnectConfig{MTU: mtuOf(agreed.MTU), MaxReads: s.o.reads,
		AckTimeout: verbs.AckTimeout(s.o.ackTimeout).Duration()})
}

func (s *session) address(l *link, h *host, remote verbs.Endpoint) error {
	if err := l.qp.Activate(); err != nil {
		return err
	}
	ah, err := s.pd.CreateAH(verbs.AHAttr{GID: remote.GID, DLID: remote.LID, SGIDIndex: h.gid.Index, Port: h.gid.Port})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, ah)
	l.to = verbs.Destination{AH: ah, QPN: remote.QPN, QKey: remote.QKey}
	return nil
}

// flags of each request, or of each one that is signaled.
func (s *session) flags(l *link) verbs.SendFlags {
	if s.p.Size <= s.o.inline && s.p.Size <= l.qp.MaxInline() && (s.p.Test[0] == 'w' || s.p.Test[0] == 's') {
		return verbs.Inline
	}
	return 0
}

// queue returns how this side waits for the completions of a queue.
func (s *session) queue(cq *verbs.CQ) queue {
	return queue{cq: cq, events: s.p.Events, yield: s.o.yield, beat: &s.beat}
}

func (s *session) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i].Close())
	}
	s.closers = nil
	return errors.Join(errs...)
}
