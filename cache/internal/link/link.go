// Package link is what client and server of the cache have in common on the device: two
// queue pairs that connect together, one for READs and one for messages, which it cuts
// into SENDs. Beside the machines it is a driver: it decides nothing.
package link

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Frame is how many bytes a SEND has at most, and window how many are posted at a time.
const (
	Frame  = 4096
	window = 4
)

// spare are receives for SENDs that only give credit: at most two are under way for as
// many frames as a side holds, and two of before.
const spare = 4

// Config is that of a link's queue pair for messages, which holds so many frames.
func Config(cfg verbs.LinkConfig, frames int) verbs.LinkConfig {
	cfg.QP.MaxSendWR, cfg.QP.MaxRecvWR, cfg.QP.Access = window+spare, frames+spare, verbs.LocalWrite
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
	return reads, wire.AppendHello(nil, &wire.Hello{Epoch: epoch, Frames: uint32(qp.MaxRecvWR() - spare), Endpoint: b}), err
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
//
// No SEND goes without a receive that waits for it: a peer that takes nothing, for as long
// as it likes, is no failure of the queue pair (rxe of Linux 6.1 gives up after half a
// second). Each SEND has in its immediate how many frames its sender has taken.
type Messages struct {
	in     *verbs.Receiver
	out    *verbs.Requester
	mr     *verbs.MR
	stream wire.Stream

	holds   uint32        // frames, this side
	theirs  uint32        // frames that the peer holds
	taken   atomic.Uint32 // frames, by this side
	told    atomic.Uint32 // what the peer knows of that
	passed  atomic.Uint32 // frames that the peer has taken
	credit  chan struct{} // has a token when passed has changed
	sent    uint32        // frames
	sending int           // bytes
	build   func(*verbs.List)
	grant   func(*verbs.List)
}

// NewMessages takes over the messages of a link of [Config], whose peer said h. Messages
// that are longer than limit are refused.
func NewMessages(l *verbs.Link, h wire.Hello, limit int) (*Messages, error) {
	if h.Frames == 0 {
		return nil, wire.Malformed
	}
	m := &Messages{
		in: l.Receiver(), stream: wire.Stream{Limit: limit}, credit: make(chan struct{}, 1),
		holds: uint32(l.QP().MaxRecvWR() - spare), theirs: h.Frames,
	}
	var err error
	if m.mr, err = l.AllocMR(window*Frame, verbs.MRConfig{}); err != nil {
		return nil, err
	}
	if m.out, err = l.Requester(); err != nil {
		return nil, err
	}
	m.build = func(list *verbs.List) {
		for off := 0; off < m.sending; off += Frame {
			list.SendImm(m.say(), m.mr.SGE(off, min(Frame, m.sending-off)))
		}
	}
	m.grant = func(list *verbs.List) { list.SendImm(m.say()) }
	return m, nil
}

// say is what the peer is to know.
func (m *Messages) say() uint32 {
	n := m.taken.Load()
	m.told.Store(n)
	return n
}

// Write sends whole messages. After an error the link is of no use.
func (m *Messages) Write(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		room, err := m.room(ctx)
		if err != nil {
			return err
		}
		m.sending = copy(m.mr.Bytes()[:min(room, window)*Frame], b)
		m.sent += uint32((m.sending + Frame - 1) / Frame)
		if err := m.out.Do(ctx, m.build); err != nil {
			return err
		}
		b = b[m.sending:]
	}
	return nil
}

// room waits until the peer has room for a frame, and answers for how many.
func (m *Messages) room(ctx context.Context) (int, error) {
	for {
		// A peer that has taken more than was sent harms itself.
		if room := int(m.theirs) - int(int32(m.sent-m.passed.Load())); room > 0 {
			return room, nil
		}
		select {
		case <-m.credit:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
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
		if got.HasImm && m.passed.Swap(got.Imm) != got.Imm {
			select {
			case m.credit <- struct{}{}:
			default:
			}
		}
		if got.Len == 0 {
			continue
		}
		m.stream.Arrived(got.Len)
		if n := m.taken.Add(1); n-m.told.Load() >= (m.holds+1)/2 {
			if err := m.out.Do(ctx, m.grant); err != nil {
				return nil, err
			}
		}
	}
}
