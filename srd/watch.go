package srd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// An endpoint outlives changes of its host. When an address goes and comes again, its GID
// has another place in the table of the port. When a link goes down and up, or a port gets
// another MAC, address handles lead nowhere. The device tells of changes at this end; a
// handle that fails, and a peer that is silent, are signs of those at either end.

const (
	lookPause = 100 * time.Millisecond // between two looks
	awayPause = time.Second            // while the address is gone: the device may have told of its return before it was there
)

// events has the GID looked up when the device tells of a change.
func (h *handles) events(ctx context.Context) {
	for ev := range h.ep.cfg.PD.Device().Events(ctx) {
		switch ev.Type {
		case verbs.EventGIDChange, verbs.EventPortActive, verbs.EventLIDChange, verbs.EventPKeyChange, verbs.EventReregister:
			h.ep.mu.Lock()
			h.moved = true
			h.doubts()
			h.ep.mu.Unlock()
		}
	}
}

// doubts has the GID looked up soon.
func (h *handles) doubts() {
	select {
	case h.doubt <- struct{}{}:
	default:
	}
}

// watch looks the GID up when there is doubt, until ctx ends.
func (h *handles) watch(ctx context.Context) {
	pause := time.NewTimer(lookPause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.doubt:
		}
		gone := h.look()
		pause.Reset(lookPause)
		if gone {
			pause.Reset(awayPause)
			h.doubts()
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// look looks the endpoint's GID up, and drops all address handles if it has moved or the
// host changed otherwise. It reports whether the GID is gone.
func (h *handles) look() (gone bool) {
	ep := h.ep
	ep.mu.Lock()
	moved := h.moved
	h.moved = false
	was := h.gid
	ep.mu.Unlock()
	gid, err := ep.cfg.PD.Device().FindGIDAgain(was)
	gone = errors.Is(err, verbs.ErrNoGID)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err != nil && !gone || ep.closed.Load() {
		return false // of a device that is gone, the endpoint hears otherwise
	}
	switch {
	case gone:
		if !h.gone {
			ep.logs.log(slog.LevelWarn, "srd: the endpoint's address is gone", "gid", was)
		}
	case h.gone || gid != was:
		ep.logs.log(slog.LevelInfo, "srd: the endpoint's address has moved", "from", was, "to", gid)
		h.gid, moved = gid, true
	}
	h.gone = gone
	if moved || gone {
		h.dropAll()
		ep.nudge() // queue pairs may be mended now
	}
	return gone
}
