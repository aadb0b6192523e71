package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
)

// tick does what is due for a peer, and returns when to look again.
func (e *Engine) tick(s *session.Peer) time.Duration {
	p := e.peers[s.Slot]
	next := never
	at := func(t time.Duration) {
		next = min(next, t)
	}
	if e.unsettled(p) {
		if e.Now-p.Progress >= e.cfg.PeerTimeout {
			e.fail(p, true)
		} else {
			at(e.silence(p))
		}
	}
	if p.State == session.Established {
		e.suspectMTU(p)
		for _, f := range &p.tx {
			if f != nil && f.live != nil {
				at(e.expire(f))
				at(e.heldBack(f))
			}
		}
		at(e.probe(p))
		if p.net != nil {
			at(e.ask(p))
		}
	}
	for _, f := range &p.rx {
		if f == nil {
			continue
		}
		if f.due > 0 && e.Now >= f.due {
			f.now, f.due = true, 0
			e.Enqueue(&p.Peer)
		} else if f.due > 0 {
			at(f.due)
		}
		if f.assemblies != nil {
			at(e.reap(p, f))
		}
	}
	if p.net != nil {
		at(e.turnOver(p))
		at(e.rest(p))
	}
	return next
}

// silence calls Config.Silent for each quarter of PeerTimeout that a peer has been silent for,
// and returns when the next one ends.
func (e *Engine) silence(p *peer) time.Duration {
	quarter := e.cfg.PeerTimeout / 4
	n := min((e.Now-p.Progress)/max(quarter, 1), 3)
	if uint8(n) > p.quarters && e.cfg.Silent != nil {
		e.cfg.Silent(p.Addr)
	}
	p.quarters = uint8(n)
	if n == 3 {
		return p.Progress + e.cfg.PeerTimeout
	}
	return p.Progress + (n+1)*quarter
}
