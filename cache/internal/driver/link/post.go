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

// posted is a list of SENDs that no goroutine waits for. It holds the memory until the device is done
// with it.
type posted struct {
	call    verbs.Call
	windows *Windows
	mr      *verbs.MR
}

// Ended implements [verbs.CompletionHandler].
func (p *posted) Ended(err error) error {
	p.windows.drop(p.mr)
	return err
}

// Post is Write without waiting, and reports whether it sent: not if b is longer than a few frames, if
// the peer has no room for all of it, or while earlier posts are under way. A failure of its SENDs
// ends the queue pair. Only the goroutine that may Write may call it.
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
	p.mr = mr
	local, frames := m.frames(mr, copy(mr.Bytes(), b))
	var list [window]verbs.WR // on the stack
	for i := range frames {
		list[i] = verbs.SendImmWR(m.say(), local[i:i+1]...)
	}
	if err := m.out.Go(ctx, &p.call, list[:frames]...); err != nil {
		return false, errors.Join(err, m.windows.give(mr))
	}
	return true, nil
}

// window returns memory to send from. Reclaiming the windows of completed SENDs costs less than
// registering more.
func (m *Messages) window() (*verbs.MR, error) {
	if m.windows.out() {
		m.out.Poll()
	}
	return m.windows.take()
}

// Settle waits until what was posted has arrived, at most for most: closing the link cancels what is
// still under way. No goroutine may post meanwhile.
func (m *Messages) Settle(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for i := range m.posts {
		if c := &m.posts[i].call; !c.Done() {
			_ = c.Wait(ctx) // the link is closed in any case
		}
	}
}

// idlePost returns a post for so many frames, or nil if they have to wait.
func (m *Messages) idlePost(frames int) *posted {
	m.mu.Lock()
	room := m.flow.Room()
	m.mu.Unlock()
	if frames > min(room, postFrames) {
		return nil
	}
	for range 2 {
		for i := range m.posts {
			if m.posts[i].call.Done() {
				return &m.posts[i]
			}
		}
		m.out.Poll() // perhaps no other goroutine polls
	}
	return nil
}
