package verbs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// findGIDAgain is [driver.FindGIDAgain].
func (d *Device) findGIDAgain(e GIDEntry) (GIDEntry, error) {
	all, err := d.GIDs()
	if err != nil {
		return GIDEntry{}, err
	}
	if now, ok := e.again(all); ok {
		return now, nil
	}
	return GIDEntry{}, d.noGID(fmt.Sprintf("%v %v on port %d again", e.Type, e.GID.Addr(), e.Port), all, d.placeOf(all))
}

// again chooses among the entries of a table the one that e has become.
func (e GIDEntry) again(all []GIDEntry) (now GIDEntry, ok bool) {
	for _, a := range all {
		if a.GID != e.GID || a.Type != e.Type || a.Port != e.Port {
			continue
		}
		if a.IfIndex == e.IfIndex {
			return a, true
		}
		if !ok && !e.GID.Addr().IsLinkLocalUnicast() { // the netdev was made anew
			now, ok = a, true
		}
	}
	return now, ok
}

// followGID is [driver.FollowGID].
func followGID(ctx context.Context, d *Device, e GIDEntry, doubt <-chan struct{}) iter.Seq2[GIDEntry, error] {
	return follow(ctx, d.async, e, doubt, d.findGIDAgain)
}

const (
	lookPause = 100 * time.Millisecond // between looks that no event asks for
	gonePause = time.Second            // while the GID is gone: the event of its return may come before it is there
)

func follow(ctx context.Context, r *asyncReader, e GIDEntry, doubt <-chan struct{}, find func(GIDEntry) (GIDEntry, error)) iter.Seq2[GIDEntry, error] {
	s := r.subscribe()
	stop := context.AfterFunc(ctx, func() { r.unsubscribe(s) })
	return func(yield func(GIDEntry, error) bool) {
		defer stop()
		defer r.unsubscribe(s)
		gone, look := false, false
		listen, pause := doubt, (<-chan time.Time)(nil)
		for {
			changed, ended := r.takeMoves(s, e.Port)
			switch {
			case ended, ctx.Err() != nil:
				return
			case changed, look:
				now, err := find(e)
				news := changed
				switch {
				case err == nil:
					news = news || gone || now != e
					e, gone = now, false
				case errors.Is(err, ErrNoGID):
					news = news || !gone
					gone = true
				}
				listen, look, pause = nil, false, time.After(lookPause)
				if gone {
					pause = time.After(gonePause)
				}
				if news && !yield(now, err) {
					return
				}
				continue
			}
			select {
			case <-s.more:
			case <-listen:
				look = true
			case <-pause:
				listen, look, pause = doubt, gone, nil
			case <-ctx.Done():
				return
			}
		}
	}
}

// takeMoves takes all events that have come, and reports whether one of them may have moved
// a GID of the port, and whether there will be no others.
func (r *asyncReader) takeMoves(s *subscriber, port uint8) (moved, ended bool) {
	for {
		ev, state := r.take(s)
		if state != taken {
			return moved, state == over
		}
		moved = moved || ev.movesGIDs(port)
	}
}

// movesGIDs reports whether the event may have changed the entry of a GID of the port, or
// what its index means to handles and queue pairs.
func (ev *Event) movesGIDs(port uint8) bool {
	switch ev.Type {
	case EventGIDChange, EventPortActive, EventPortError, EventLIDChange:
		return ev.Port == port
	}
	return false
}
