package session

import (
	"math/bits"
	"time"
)

// line is targets that wait for a context: the most urgent one is served first, and
// those that have waited for too long before that. All its operations take the same time,
// however many wait.
type line struct {
	n        int
	ages     chain  // the one that has waited longest is first
	nonempty uint64 // bit k: class k
	classes  [classes]chain
}

// classes of backlogs: the first ones are exact, the last one has all beyond.
const classes = 33

func classOf(backlog int32) uint8 { return uint8(min(max(backlog, 0), classes-1)) }

func (l *line) empty() bool { return l.ages.first == nil }

// add puts a target into the line. It may have begun to wait earlier than others
// in it.
func (l *line) add(p *Peer) {
	before := l.ages.last
	for before != nil && before.since > p.since {
		before = before.age.before
	}
	l.ages.insert(p, before, byAge)
	p.line, p.rest = l, inLine
	l.n++
	l.classify(p)
}

// classify puts a target at the end of its class.
func (l *line) classify(p *Peer) {
	p.class = classOf(p.pending)
	k := &l.classes[p.class]
	k.insert(p, k.last, byClass)
	l.nonempty |= 1 << p.class
}

func (l *line) declassify(p *Peer) {
	k := &l.classes[p.class]
	k.remove(p, byClass)
	if k.first == nil {
		l.nonempty &^= 1 << p.class
	}
}

func (l *line) remove(p *Peer) {
	l.n--
	l.declassify(p)
	l.ages.remove(p, byAge)
	p.line, p.rest = nil, nowhere
}

// chain is a list of targets, each of which has its neighbours in it.
type chain struct{ first, last *Peer }

type neighbours struct{ before, behind *Peer }

func byAge(p *Peer) *neighbours   { return &p.age }
func byClass(p *Peer) *neighbours { return &p.same }

// insert puts a target behind another one, or in front if that is nil.
func (c *chain) insert(p, before *Peer, of func(*Peer) *neighbours) {
	at, next := of(p), &c.first
	if before != nil {
		next = &of(before).behind
	}
	at.before, at.behind, *next = before, *next, p
	if at.behind == nil {
		c.last = p
	} else {
		of(at.behind).before = p
	}
}

func (c *chain) remove(p *Peer, of func(*Peer) *neighbours) {
	at := of(p)
	next, last := &c.first, &c.last
	if at.before != nil {
		next = &of(at.before).behind
	}
	if at.behind != nil {
		last = &of(at.behind).before
	}
	*next, *last = at.behind, at.before
	*at = neighbours{}
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
	if b == nil || a != nil && a.before(b, now, maxWait) {
		return a
	}
	return b
}

// before reports whether a target is served before another one: if it alone has waited for
// too long, or neither has and it is more urgent, or else if it came first.
func (p *Peer) before(q *Peer, now, maxWait time.Duration) bool {
	late, u, v := now-p.since >= maxWait, p.urgency(now, maxWait), q.urgency(now, maxWait)
	if late != (now-q.since >= maxWait) {
		return late
	}
	if !late && u != v {
		return u > v
	}
	return p.since <= q.since
}

func (l *line) first(now, maxWait time.Duration) *Peer {
	if oldest := l.ages.first; oldest == nil || now-oldest.since >= maxWait {
		return oldest
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
