package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Strangers holds answers to those of whom nothing is kept: few, and at a bounded rate. The
// zero value has to be told how many it may give at once, by Begin.
type Strangers struct {
	answers  [32]Answer
	first, n int
	credit   int
	filled   time.Duration
}

// Answer is one of them: of few types, and short.
type Answer struct {
	To        wire.Addr
	Type      wire.Type
	Slot      uint32
	Token     uint64
	Reset     uint64
	Challenge wire.Challenged
}

// StrangerBurst is how many there are at once at most.
const StrangerBurst = 64

const strangerRate = 100 * time.Microsecond // between two of them

// Begin allows the first answers.
func (s *Strangers) Begin() { s.credit = StrangerBurst }

// Add keeps an answer, and answers false if there are too many.
func (s *Strangers) Add(a Answer, now time.Duration) bool {
	if n := int((now - s.filled) / strangerRate); n > 0 {
		s.credit, s.filled = min(s.credit+n, StrangerBurst), now
	}
	if s.n == len(s.answers) || s.credit == 0 {
		return false
	}
	s.credit--
	s.answers[(s.first+s.n)%len(s.answers)] = a
	s.n++
	return true
}

// Empty tells whether there is none to be sent.
func (s *Strangers) Empty() bool { return s.n == 0 }

// Next takes an answer, of which there is one, writes its packet to b, and answers where
// it goes.
func (s *Strangers) Next(stamp uint32, b []byte) Out {
	a := &s.answers[s.first]
	s.first = (s.first + 1) % len(s.answers)
	s.n--
	k := wire.Packet{Type: a.Type, Slot: a.Slot, Token: a.Token, Stamp: stamp, Reset: a.Reset, Challenge: a.Challenge}
	return Out{To: a.To, Headers: k.Encode(b), Stranger: true}
}
