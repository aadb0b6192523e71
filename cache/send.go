package cache

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// A session's messages are sent by the goroutine that has something to send, if that takes no waiting, and
// otherwise by a goroutine of the session: one of them at a time.

// push posts what there is to send, or leaves it to send. mu must be held; it is released while push posts.
func (s *session) push() {
	const rounds = 2 // others may always have more
	p, ok := s.conn.(link.Poster)
	if !ok || s.sending || s.posting || len(s.unsent) > 0 {
		s.signal()
		return
	}
	s.posting = true
	for range rounds {
		if len(s.out) > bulk || s.ended.Load() {
			break
		}
		b := append(s.appendTold(s.spare[:0], &s.report), s.out...)
		if len(b) == 0 {
			break
		}
		s.out = s.out[:0]
		s.mu.Unlock()
		sent, err := p.Post(s.live, b)
		s.mu.Lock()
		switch s.spare = b; {
		case err != nil:
			s.endNow(err)
		case !sent:
			s.unsent, s.spare = b, nil
		}
		if !sent {
			break
		}
	}
	s.posting = false
	if len(s.unsent) > 0 || len(s.out) > 0 || s.tell {
		s.signal()
	}
}

// bulk is how many bytes of requests are written before send checks again whether the server
// has to hear this client's horizon: it must not wait for that behind all requests.
const bulk = 16 << 10

// send sends requests, and this client's horizon, until that fails or the session ends.
func (s *session) send() error {
	var out, rest []byte // what was taken, and what is left of it
	var told []byte
	for {
		s.mu.Lock()
		told = told[:0]
		if !s.posting {
			if len(rest) == 0 && len(s.unsent) > 0 { // which may have an older horizon: that goes first
				rest, s.unsent = s.unsent, nil
			} else {
				if len(rest) == 0 {
					if cap(out) > 2*maxOut { // after a long value
						out = nil
					}
					if out, s.out = s.out, out[:0]; len(out) > maxOut {
						close(s.room)
						s.room = make(chan struct{})
					}
					rest = out
				}
				told = s.appendTold(told, &s.report)
			}
		}
		s.sending = len(rest) > 0 || len(told) > 0
		idle := !s.sending
		s.mu.Unlock()
		if idle {
			select {
			case <-s.wake:
				continue
			case <-s.live.Done():
				return s.live.Err()
			}
		}
		n := wire.Whole(rest, bulk)
		now := rest[:n]
		rest = rest[n:]
		if len(now) < bulk { // short enough to be copied
			told = append(told, now...)
			now = nil
		}
		for _, b := range [...][]byte{told, now} {
			if err := link.Send(s.live, s.conn, b); err != nil {
				return err
			}
		}
	}
}

// appendTold appends this client's horizon and report, if they are due. mu must be held.
func (s *session) appendTold(out []byte, report *wire.Report) []byte {
	if !s.tell {
		return out
	}
	s.tell = false
	if h := s.m.Horizon(); h != s.said {
		s.said = h
		out = wire.AppendHorizon(out, &h)
	}
	if s.m.Report(report); len(report.Accesses) > 0 {
		out = wire.AppendReport(out, report)
	}
	return out
}

// tellAgain has the horizon sent once more, a little later, if what is sent now is not all: READs that were under way
// when the server asked may be over by then. mu must be held.
func (s *session) tellAgain() {
	if s.soon == nil {
		s.soon = time.AfterFunc(again, s.tellRest)
	} else {
		s.soon.Reset(again)
	}
}

func (s *session) tellRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said.Quiet < s.said.Applied && !s.ended.Load() {
		s.tell = true
		s.signal()
	}
}
