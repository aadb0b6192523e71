// Package link is what client and server of the cache have in common on the device: two
// queue pairs that connect together, one for READs and one for messages, which it cuts
// into SENDs. Beside the machines it is a driver: it decides nothing.
package link

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Frame is how many bytes a SEND has at most, and window how many are posted at a time.
const (
	Frame  = 4096
	window = 4
)

// Config is that of a link's queue pair for messages, which holds depth of them.
// A peer that sends more is told to wait.
func Config(cfg verbs.LinkConfig, depth int) verbs.LinkConfig {
	cfg.QP.MaxSendWR, cfg.QP.MaxRecvWR, cfg.QP.Access = window, depth, verbs.LocalWrite
	cfg.Receive = &verbs.ReceiverConfig{Size: Frame}
	return cfg
}

// Prepare makes the queue pair of the READs, for a Setup: it closes with the link. The
// answer is for the peer.
func Prepare(l *verbs.Link, cfg verbs.LinkConfig, epoch uint32) (*verbs.Link, []byte, error) {
	qp := l.QP()
	reads, _, err := verbs.PrepareLink(qp.PD().Device(), qp.GID(), cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := l.Own(reads); err != nil {
		return nil, nil, err
	}
	e, err := reads.QP().Endpoint()
	if err != nil {
		return nil, nil, err
	}
	b, err := e.MarshalBinary()
	return reads, wire.AppendHello(nil, &wire.Hello{Epoch: epoch, Endpoint: b}), err
}

// Join connects the queue pair of the READs with the peer's, which the link knows.
func Join(l, reads *verbs.Link, cfg verbs.ConnectConfig) (wire.Hello, error) {
	h, err := wire.ReadHello(l.Data())
	if err != nil {
		return h, fmt.Errorf("what the peer said is not the cache's, or of another version: %w", err)
	}
	var e verbs.Endpoint
	if err := e.UnmarshalBinary(h.Endpoint); err != nil {
		return h, err
	}
	reads.Connected(nil, e)
	return h, reads.QP().Connect(e, cfg)
}

// Messages carries messages over a link. One goroutine at a time writes, and one reads.
type Messages struct {
	in      *verbs.Receiver
	out     *verbs.Requester
	mr      *verbs.MR
	stream  wire.Stream
	sending int
	build   func(*verbs.List)
}

// NewMessages takes over the messages of a link of [Config]. Messages that are longer
// than limit are refused.
func NewMessages(l *verbs.Link, limit int) (*Messages, error) {
	m := &Messages{in: l.Receiver(), stream: wire.Stream{Limit: limit}}
	var err error
	if m.mr, err = l.AllocMR(window*Frame, verbs.MRConfig{}); err != nil {
		return nil, err
	}
	if m.out, err = l.Requester(); err != nil {
		return nil, err
	}
	m.build = func(list *verbs.List) {
		for off := 0; off < m.sending; off += Frame {
			list.Send(m.mr.SGE(off, min(Frame, m.sending-off)))
		}
	}
	return m, nil
}

// Write sends whole messages. After an error the link is of no use.
func (m *Messages) Write(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		m.sending = copy(m.mr.Bytes(), b)
		if err := m.out.Do(ctx, m.build); err != nil {
			return err
		}
		b = b[m.sending:]
	}
	return nil
}

// Next waits for a message. It is good until the next call.
func (m *Messages) Next(ctx context.Context) ([]byte, error) {
	for {
		if b, err := m.stream.Next(); b != nil || err != nil {
			return b, err
		}
		got, err := m.in.Receive(ctx, m.stream.Room(Frame))
		if err != nil {
			return nil, err
		}
		m.stream.Arrived(got.Len)
	}
}
