package session

import (
	"math/bits"
	"time"
)

// line is targets that wait for a context: the most urgent one is served first, and
// those that have waited for too long before that. All its operations take the same time,
// however many wait.
type line struct {
	n              int
	oldest, newest *Peer
	nonempty       uint64 // bit k: class k
	classes        [classes]struct{ first, last *Peer }
}

// classes of backlogs: the first ones are exact, the last one has all beyond.
const classes = 33

func classOf(backlog int32) uint8 { return uint8(min(max(backlog, 0), classes-1)) }

func (l *line) empty() bool { return l.oldest == nil }

// add puts a target into the line. It may have begun to wait earlier than others
// in it.
func (l *line) add(p *Peer) {
	before := l.newest
	for before != nil && before.since > p.since {
		before = before.older
	}
	p.older = before
	if before == nil {
		p.newer, l.oldest = l.oldest, p
	} else {
		p.newer, before.newer = before.newer, p
	}
	if p.newer == nil {
		l.newest = p
	} else {
		p.newer.older = p
	}
	p.line, p.rest = l, inLine
	l.n++
	l.classify(p)
}

// classify puts a target at the end of its class.
func (l *line) classify(p *Peer) {
	p.class = classOf(p.pending)
	k := &l.classes[p.class]
	p.ahead, p.behind = k.last, nil
	if k.last == nil {
		k.first = p
	} else {
		k.last.behind = p
	}
	k.last = p
	l.nonempty |= 1 << p.class
}

func (l *line) declassify(p *Peer) {
	k := &l.classes[p.class]
	if p.ahead == nil {
		k.first = p.behind
	} else {
		p.ahead.behind = p.behind
	}
	if p.behind == nil {
		k.last = p.ahead
	} else {
		p.behind.ahead = p.ahead
	}
	if k.first == nil {
		l.nonempty &^= 1 << p.class
	}
	p.ahead, p.behind = nil, nil
}

func (l *line) remove(p *Peer) {
	l.n--
	l.declassify(p)
	if p.older == nil {
		l.oldest = p.newer
	} else {
		p.older.newer = p.newer
	}
	if p.newer == nil {
		l.newest = p.older
	} else {
		p.newer.older = p.older
	}
	p.older, p.newer, p.line, p.rest = nil, nil, nil, nowhere
}

// changed follows the backlog of a target in line.
func (l *line) changed(p *Peer) {
	if classOf(p.pending) != p.class {
		l.declassify(p)
		l.classify(p)
	}
}

// next returns the target to serve first, of this line and another one.
func (l *line) next(other *line, now, maxWait time.Duration) *Peer {
	a, b := l.first(now, maxWait), other.first(now, maxWait)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	aLate, bLate := now-a.since >= maxWait, now-b.since >= maxWait
	switch {
	case aLate != bLate:
		if aLate {
			return a
		}
		return b
	case !aLate && a.urgency(now, maxWait) != b.urgency(now, maxWait):
		if a.urgency(now, maxWait) > b.urgency(now, maxWait) {
			return a
		}
		return b
	case a.since <= b.since:
		return a
	}
	return b
}

func (l *line) first(now, maxWait time.Duration) *Peer {
	if l.oldest == nil {
		return nil
	}
	if now-l.oldest.since >= maxWait {
		return l.oldest
	}
	var best *Peer
	for left := l.nonempty; left != 0; left &= left - 1 {
		p := l.classes[bits.TrailingZeros64(left)].first
		if best == nil || p.urgency(now, maxWait) >= best.urgency(now, maxWait) {
			best = p
		}
	}
	return best
}

// urgency returns how much is gained by serving a target now. To serve larger backlogs takes
// fewer turns, but only to serve the largest ones makes small ones come too late, one
// request at a time: when all have to wait for about as long as they may, that order is
// none any more. So the time counts too, and the backlog to the third power; in
// simulations that took the fewest turns, with requests for all alike and with most for
// some.
func (p *Peer) urgency(now, maxWait time.Duration) int64 {
	backlog := max(int64(p.class), 1)
	return backlog * backlog * backlog * int64((now-p.since+maxWait/64)/time.Microsecond)
}
