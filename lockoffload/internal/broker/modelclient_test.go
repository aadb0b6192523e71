package broker

import (
	"fmt"
	"slices"
	"time"
)

func (w *world) act(c *simClient) error {
	if c.state != idle && c.state < silent && !w.calm && w.rng.IntN(300) == 0 {
		c.state, c.until = silent, w.now+lease+w.some(lease)
		if w.rng.IntN(2) == 0 {
			c.out = nil // what it was about to say
		}
		return nil
	}
	switch c.state {
	case idle:
		if w.calm {
			return nil
		}
		c.seq++
		c.slot = uint32(w.rng.IntN(len(w.words)))
		if w.barge && w.rng.IntN(3) == 0 {
			if w.swap(c.slot, 0, tagOf(c)) {
				w.run[c.slot] = Never
				return w.hold(c, Ask{Peer: none})
			}
			return nil
		}
		c.ask, c.state = Ask{c.id, c.seq}, asked
		a, slot := c.ask, c.slot
		w.send(c, func(now time.Duration) {
			w.order[slot] = append(w.order[slot], a)
			if len(w.order[slot]) == 1 {
				w.since[slot] = max(w.since[slot], now)
			}
			w.b.Ask(now, slot, a)
		})
	case asked:
		if w.rng.IntN(100) == 0 { // its caller gives up
			w.done(c)
			c.state = idle
		}
	case called:
		if w.rng.IntN(40) == 0 {
			w.done(c)
			c.state = idle
			return nil
		}
		if !w.swap(c.slot, c.word, tagOf(c)) {
			w.done(c)
			c.state = idle // it would ask again
			return nil
		}
		return w.hold(c, c.ask)
	case holding:
		if w.now < c.until {
			return nil
		}
		if c.ask.Peer != none && !c.said { // before, now or never
			c.said = true
			if w.rng.IntN(20) > 0 {
				w.done(c)
			}
			if w.rng.IntN(2) == 0 {
				return nil
			}
		}
		w.owner[c.slot] = none
		if !w.swap(c.slot, tagOf(c), 0) {
			return fmt.Errorf("client %d lost the lock of %d to %#x", c.id, c.slot, w.words[c.slot])
		}
		c.state, c.said = idle, false
	case silent:
		if w.now >= c.until { // the target takes back what it held
			if w.words[c.slot] == tagOf(c) {
				w.owner[c.slot] = none
				w.swap(c.slot, tagOf(c), 0)
			}
			c.state = departed
		}
	case departed:
		c.out = nil
		for slot := range w.order {
			w.order[slot] = slices.DeleteFunc(w.order[slot], func(a Ask) bool { return a.Peer == c.id })
		}
		w.b.Forget(w.now, c.id)
		w.forgotten()
		c.in, c.state, c.said = nil, idle, false
	}
	return nil
}

func (w *world) hold(c *simClient, a Ask) error {
	if o := w.owner[c.slot]; o != none {
		return fmt.Errorf("clients %d and %d have the lock of %d", o, c.id, c.slot)
	}
	w.owner[c.slot] = int(c.id)
	c.ask, c.state, c.until = a, holding, w.now+w.some(800*time.Microsecond)
	return nil
}

// take moves what the broker wants.
func (w *world) take() error {
	for _, l := range w.b.Lists {
		if l.N == 0 || slices.ContainsFunc(w.under, func(o *simList) bool { return o.Index == l.Index || o.Slot == l.Slot }) {
			return fmt.Errorf("list %+v beside %d others", l, len(w.under))
		}
		for _, o := range l.Ops[:l.N] {
			if o.Compare != 0 && !w.fresh[o.Compare] || o.Swap != 0 && w.fresh[o.Swap] {
				return fmt.Errorf("list %+v", l)
			}
			w.fresh[o.Swap] = true
		}
		w.under = append(w.under, &simList{List: l})
	}
	for _, a := range w.b.Replies {
		if w.over[a.Ask] {
			return fmt.Errorf("%+v has a reply twice", a)
		}
		w.over[a.Ask] = true
		if a.Word != 0 {
			if o := w.order[a.Slot]; len(o) == 0 || o[0] != a.Ask {
				return fmt.Errorf("%+v has a reply before %+v", a, o)
			}
			w.order[a.Slot] = w.order[a.Slot][1:]
			w.since[a.Slot] = w.now
		}
		c := w.clients[a.Peer]
		c.in = append(c.in, a)
	}
	w.b.Lists, w.b.Replies = w.b.Lists[:0], w.b.Replies[:0]
	if len(w.under) > w.b.cfg.Lists {
		return fmt.Errorf("%d lists under way", len(w.under))
	}
	wanted := 0
	for slot := range w.words {
		if s := w.b.slots[uint32(slot)]; s != nil && (len(s.queue) > 0 || s.word != 0 || s.under || s.queued) {
			wanted++
		}
	}
	if wanted != len(w.b.slots) {
		return fmt.Errorf("the broker remembers %d slots, %d are wanted", len(w.b.slots), wanted)
	}
	return nil
}

// handedOn looks at a word that was reserved now. Others must have had it, or a while to
// take it, since it was for the first time in a row.
func (w *world) handedOn(slot uint32) error {
	if w.run[slot] == Never || w.now-w.zero[slot] >= limits.Gap {
		w.run[slot] = w.now
	}
	if d := w.now - w.run[slot]; d > limits.MaxRun+time.Duration(len(w.words))*slack {
		return fmt.Errorf("slot %d is handed on for %v", slot, d)
	}
	return nil
}
