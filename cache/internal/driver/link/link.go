// Package link is what client and server of the cache have in common on the device: two
// queue pairs that connect together, one for READs and one for messages, which it cuts
// into SENDs. Beside the machines it is a driver: it decides nothing.
package link

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/cache/internal/credit"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Frame is how many bytes a SEND has at most, and window how many are posted at a time.
const (
	Frame  = 4096
	window = 4
)

// Config is that of a link's queue pair for messages, which holds so many frames. Receives
// may be smaller than a frame: the peer is told.
func Config(cfg verbs.LinkConfig, frames int) verbs.LinkConfig {
	// One goroutine sends windows, another one a frame without data now and then. What was posted
	// without waiting for it fits too.
	cfg.QP.MaxSendWR, cfg.QP.MaxRecvWR, cfg.QP.Access = window+2, frames+credit.Spare, verbs.LocalWrite
	// The device may grant a longer queue. There is memory for what was asked for.
	cfg.Receive = &verbs.ReceiverConfig{Size: Frame, Depth: frames + credit.Spare}
	return cfg
}

// Prepare makes the queue pair of the READs, for a Setup: it closes with the link. What the
// peer is offered are regions and, sealed, what h says, both queue pairs, and how long a frame may be.
func Prepare(l *verbs.Link, cfg verbs.LinkConfig, h wire.Hello, regions []verbs.Region, seal greet.Seal) (*verbs.Link, verbs.Offer, error) {
	qp := l.QP()
	// An empty WRITE would break it, since the peer allows none. The connection of the messages' link tells of a peer that is gone.
	cfg.QP.KeepAlive = -1
	reads, _, err := driver.PrepareLink(qp.PD().Device(), qp.GID(), cfg)
	if err != nil {
		return nil, verbs.Offer{}, err
	}
	if err := l.AddCloser(reads); err != nil {
		return nil, verbs.Offer{}, err
	}
	var both [2]verbs.Endpoint
	for i, q := range []*verbs.QP{qp, reads.QP()} {
		if both[i], err = q.Endpoint(); err != nil {
			return nil, verbs.Offer{}, err
		}
	}
	h.Frame = uint32(l.Receiver().Size())
	if h.Endpoint, err = both[1].MarshalBinary(); err != nil {
		return nil, verbs.Offer{}, err
	}
	both[0].Regions = regions
	said, err := saying(both[0], h)
	if err != nil {
		return nil, verbs.Offer{}, err
	}
	h.Seal = seal.Of(said)
	return reads, verbs.Offer{Regions: regions, Data: wire.AppendHello(nil, &h)}, nil
}

// saying returns all that a side says of its queue pairs, without the seal, and without what the
// link's ends settle when they meet: MTU and READs under way.
func saying(e verbs.Endpoint, h wire.Hello) ([]byte, error) {
	h.Seal = [wire.SealSize]byte{}
	e.MTU, e.MaxReads = verbs.MTU256, 0
	e.Data = wire.AppendHello(nil, &h)
	return e.MarshalBinary()
}

// Join connects the queue pair of the READs with the peer's, which the link knows. No other queue pair
// is connected: what the link was told must be sealed by the peer of the greeting.
func Join(l, reads *verbs.Link, cfg verbs.ConnectConfig, seal greet.Seal) (wire.Hello, error) {
	peer := l.Peer()
	h, err := wire.ReadHello(peer.Data)
	if err != nil {
		return h, fmt.Errorf("what the peer said is not the cache's, or of another version: %w", err)
	}
	said, err := saying(peer, h)
	if err == nil {
		err = seal.Check(said, h.Seal)
	}
	if err != nil {
		return h, err
	}
	var e verbs.Endpoint
	if err := e.UnmarshalBinary(h.Endpoint); err != nil {
		return h, err
	}
	driver.Connected(reads, nil, e)
	return h, reads.QP().Connect(e, cfg)
}

// Messages carries messages over a link. One goroutine at a time writes, and one reads.
//
// No SEND goes without a receive that waits for it: a peer that takes nothing, for as long
// as it likes, is no failure of the queue pair (rxe of Linux 6.1 gives up after half a
// second). Each SEND has in its immediate how many frames its sender has taken.
type Messages struct {
	in      *verbs.Receiver
	out     *verbs.Requester
	windows *Windows
	frame   int // of the peer
	stream  wire.Stream
	kept    int // frames with data that have arrived, of which the peer is told when they are taken

	posts  [posts]posted
	mu     sync.Mutex // of flow
	flow   credit.Flow
	credit chan struct{} // has a token when there is news of what the peer has taken
}

// NewMessages takes over the messages of a link of [Config] that holds so many frames; h is the peer's
// hello. Messages that are longer than limit are refused.
func NewMessages(l *verbs.Link, h wire.Hello, frames, limit int) (*Messages, error) {
	w := NewWindows(l.PD())
	m, err := w.Messages(l, h, frames, limit)
	if err == nil {
		err = l.AddCloser(w)
	}
	return m, err
}

// Messages is [NewMessages] with the memory of w, in the link's protection domain.
func (w *Windows) Messages(l *verbs.Link, h wire.Hello, frames, limit int) (*Messages, error) {
	if h.Frames == 0 || h.Frame == 0 {
		return nil, wire.Malformed
	}
	m := &Messages{
		in: l.Receiver(), windows: w, frame: int(min(h.Frame, Frame)), stream: wire.Stream{Limit: limit}, credit: make(chan struct{}, 1),
		flow: credit.New(uint32(frames), h.Frames),
	}
	for i := range m.posts {
		m.posts[i].windows = w
		m.posts[i].call.Then = &m.posts[i]
	}
	var err error
	if m.out, err = l.Requester(); err != nil {
		return nil, err
	}
	return m, nil
}

// say returns what the peer has to know.
func (m *Messages) say() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flow.Say()
}

// Write sends whole messages. After an error the link is of no use.
func (m *Messages) Write(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		room, err := m.room(ctx)
		if err != nil {
			return err
		}
		n, err := m.send(ctx, b, min(room, window)*m.frame)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// send sends up to limit bytes of b, and returns how many. When a list is done, even with an error,
// the device no longer accesses its memory.
func (m *Messages) send(ctx context.Context, b []byte, limit int) (n int, err error) {
	mr, err := m.window()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.windows.give(mr)) }()
	n = copy(mr.Bytes()[:limit], b)
	local, frames := m.frames(mr, n)
	var list [window]verbs.WR // on the stack
	for i := range frames {
		list[i] = verbs.SendImmWR(m.say(), local[i:i+1]...)
	}
	err = m.out.Do(ctx, list[:frames]...)
	var left *verbs.InFlightError
	if errors.As(err, &left) {
		<-left.Done()
	}
	return n, err
}

// frames returns the frames of n bytes of mr, and counts them as sent.
func (m *Messages) frames(mr *verbs.MR, n int) (local [window]verbs.SGE, frames int) {
	for off := 0; off < n; off += m.frame {
		local[frames] = mr.SGE(off, min(m.frame, n-off))
		frames++
	}
	m.mu.Lock()
	m.flow.Send(frames)
	m.mu.Unlock()
	return local, frames
}

// room waits until the peer has room for a frame, and returns for how many.
func (m *Messages) room(ctx context.Context) (int, error) {
	for {
		m.mu.Lock()
		room := m.flow.Room()
		m.mu.Unlock()
		if room > 0 {
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
		if err := m.take(ctx); err != nil {
			return nil, err
		}
		if b, err := m.stream.Next(); b != nil || err != nil {
			return b, err
		}
		got, err := m.in.Receive(ctx, m.stream.Room(m.in.Size()))
		if err != nil {
			return nil, err
		}
		m.arrived(&got)
	}
}

// Try is Next without waiting: nil if there is no message. Then the connection holds no memory for
// messages, unless a part of one has come.
func (m *Messages) Try(ctx context.Context) ([]byte, error) {
	for {
		if err := m.take(ctx); err != nil {
			return nil, err
		}
		if b, err := m.stream.Next(); b != nil || err != nil {
			return b, err
		}
		if more, err := m.try(); !more {
			return nil, err
		}
	}
}

// Hear is for a reader that takes no messages for now, but sends, for which the peer must grant room: it takes
// what the peer says of that, without waiting. Messages stay for Next or Try, and until then the peer is granted no
// room for more of them.
func (m *Messages) Hear() error {
	for {
		if more, err := m.try(); !more {
			return err
		}
	}
}

// try receives a frame if there is one.
func (m *Messages) try() (ok bool, err error) {
	m.stream.Borrow(m.windows.buffer)
	got, ok, err := m.in.TryReceive(m.stream.Room(m.in.Size()))
	if ok {
		m.arrived(&got)
	} else {
		m.windows.keep(m.stream.Return())
	}
	return ok, err
}

// arrived handles a frame.
func (m *Messages) arrived(got *verbs.Message) {
	m.mu.Lock()
	news := got.HasImm && m.flow.Heard(got.Imm)
	m.mu.Unlock()
	if news {
		select {
		case m.credit <- struct{}{}:
		default:
		}
	}
	if m.stream.Arrived(got.Len); got.Len > 0 {
		m.kept++
	}
}

// take takes the frames that are kept, and tells the peer if it has to hear of that now.
func (m *Messages) take(ctx context.Context) error {
	if m.kept == 0 {
		return nil
	}
	due := false
	m.mu.Lock()
	for ; m.kept > 0; m.kept-- {
		due = m.flow.Took()
	}
	m.mu.Unlock()
	if due {
		return m.out.Do(ctx, verbs.SendImmWR(m.say()))
	}
	return nil
}
