package mirror

import (
	"math"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// times bounds the server's clock. A message that says "it is c", in answer to what was
// sent at the local time a, was made after a: so at the local time t the server's clock is
// at most c + (t - a), and what the two clocks drift apart.
type times struct {
	known bool
	clock uint64
	asked int64
}

// drift is how much faster the server's clock may be: 1/1024 is far more than any crystal.
const drift = 1024

// latest returns the latest that it can be at the server at the local time now, in ms.
func (t *times) latest(now int64) uint64 {
	if !t.known {
		return math.MaxUint64
	}
	passed := uint64(max(now-t.asked, 0))
	return t.clock + passed + passed/drift + 1
}

// Replied takes the clock of a reply to what was sent at the local time asked, at the
// local time now. Times are in ms.
func (m *Mirror) Replied(clock uint64, asked, now int64) {
	t := times{true, clock, asked}
	m.Told(clock, now)
	if !m.times.known || t.latest(now) <= m.times.latest(now) {
		m.times = t
	}
}

// Told takes the clock of any message, at the local time now. If that is later than it can be, the
// local clock has stood still meanwhile, as that of a virtual machine does that is paused: nothing
// is known of the server's until it is asked again.
func (m *Mirror) Told(clock uint64, now int64) {
	if clock > m.times.latest(now) {
		m.times = times{}
	}
}

// sampler chooses hits to report.
type sampler struct {
	every uint64
	state uint64
	hits  uint64 // all since the last report
	list  []wire.Access
}

// maxSample are reported at most at a time.
const maxSample = 256

// hit notes one in every so many, at random: each n-th could be always the same key.
func (s *sampler) hit(e *wire.Entry) {
	s.hits++
	s.state = s.state*6364136223846793005 + 1442695040888963407
	if len(s.list) < maxSample && s.state>>33%s.every == 0 {
		s.list = append(s.list, wire.Access{Fingerprint: e.Fingerprint, Version: e.Version})
	}
}

// Report takes the sample of hits since the last one into r. If it is empty, nothing is taken.
func (m *Mirror) Report(r *wire.Report) {
	s := &m.sample
	r.Epoch, r.Hits, r.Accesses = m.epoch, s.hits, append(r.Accesses[:0], s.list...)
	if len(s.list) > 0 {
		s.hits, s.list = 0, s.list[:0]
	}
}
