package link

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	posts      = 2 // that may be under way, and
	postFrames = 2 // frames of each: less than a window
)

// posted is a list of SENDs that nobody waits for. It has the memory until the device is done with it.
type posted struct {
	call    verbs.Call
	windows *Windows
	mr      *verbs.MR
}

// Ended is [verbs.Ender]'s.
func (p *posted) Ended(err error) error {
	p.windows.drop(p.mr)
	return err
}

// Post is Write without waiting, and tells whether it did anything: not where b is longer than a few frames,
// where the peer has no room for all of it, and where what was posted before is still under way. That
// its SENDs fail ends the queue pair. It is for who may Write.
func (m *Messages) Post(ctx context.Context, b []byte) (bool, error) {
	frames := (len(b) + m.frame - 1) / m.frame
	p := m.idlePost(frames)
	if p == nil {
		return false, nil
	}
	if err := m.windows.trim(); err != nil {
		return false, err
	}
	mr, err := m.window()
	if err != nil {
		return false, err
	}
	m.mr, p.mr = mr, mr
	m.sending = copy(mr.Bytes(), b)
	m.mu.Lock()
	m.flow.Send(frames)
	m.mu.Unlock()
	if err := m.out.Go(ctx, &p.call, m.build); err != nil {
		return false, errors.Join(err, m.windows.give(mr))
	}
	return true, nil
}

// window is memory to send from. To take that back whose SENDs are over costs less than to register more.
func (m *Messages) window() (*verbs.MR, error) {
	if m.windows.out() {
		m.out.Poll()
	}
	return m.windows.take()
}

// Settle waits until what was posted has arrived, for a while at most: who closes the link takes back what is
// still under way. Nobody posts meanwhile.
func (m *Messages) Settle(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for i := range m.posts {
		if c := &m.posts[i].call; !c.Over() {
			_ = c.Wait(ctx) // the link is closed in any case
		}
	}
}

// idlePost is one for so many frames, nil if they have to wait.
func (m *Messages) idlePost(frames int) *posted {
	m.mu.Lock()
	room := m.flow.Room()
	m.mu.Unlock()
	if frames > min(room, postFrames) {
		return nil
	}
	for range 2 {
		for i := range m.posts {
			if m.posts[i].call.Over() {
				return &m.posts[i]
			}
		}
		m.out.Poll() // nobody else may
	}
	return nil
}
