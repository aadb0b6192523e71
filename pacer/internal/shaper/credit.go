package shaper

import "time"

// Sub is a request packet that was granted: its place, and the generation of that. Credit is
// counted by what is granted and returns once, however the packet ends.
type Sub uint64

// MaxSub is the largest of them: they fit into the number of a work request.
const MaxSub = 1<<47 - 1

const genMask = 1<<23 - 1

func (id Sub) place() int64 { return int64(id & (1<<24 - 1)) }

type sub struct {
	cmd    int32
	offset int
	length int
	wire   int64
	small  bool
	under  bool // outstanding
	lent   bool // overdue
	// A probe of the tuner waited for it in vain.
	stranded bool
	alone    bool // no other that is not small was when it went
	granted  time.Duration
	gen      uint32
	next     int32
}

func (s *Shaper) sub(id Sub) (int32, bool) {
	i := id.place()
	if i >= int64(len(s.subs)) || s.subs[i].gen&genMask != uint32(id>>24) || !s.subs[i].under {
		return none, false
	}
	return int32(i), true
}

func (s *Shaper) newSub() int32 {
	if i := s.freeSub.head; i != none {
		s.freeSub.head = s.subs[i].next
		return i
	}
	s.subs = append(s.subs, sub{gen: s.firstGen})
	return int32(len(s.subs) - 1)
}

func (s *Shaper) dropSub(i int32) {
	sb := &s.subs[i]
	sb.gen++
	sb.next = s.freeSub.head
	s.freeSub.head = i
}

// grant issues the request packet that a unit presents, and moves the unit on.
func (s *Shaper) grant(u int, now time.Duration) Grant {
	p := s.present[u]
	g := Grant{Request: Request(p.cmd), Flow: Flow(p.flow), Again: p.sub != none}
	c := &s.cmds[p.cmd]
	g.Tag, g.Kind, g.First = c.Tag, c.Kind, !g.Again && c.offset == 0
	g.Sub = s.issue(&p, now)
	sb := &s.subs[g.Sub.place()]
	g.Offset, g.Length = sb.offset, sb.length
	s.classes[s.cmds[p.cmd].Class].last = u
	s.clock++
	s.turns[u] = s.clock
	if s.hasWork(p.flow) {
		s.turn(p.flow, p.wire)
	} else {
		s.idle(p.flow)
	}
	return g
}

// issue makes a request packet of a candidate, and debits all limits that it counts for.
func (s *Shaper) issue(p *candidate, now time.Duration) Sub {
	c, f := &s.cmds[p.cmd], &s.flows[p.flow]
	k := &s.classes[c.Class]
	again := p.sub != none
	i := p.sub
	if again {
		f.failed.head = s.subs[i].next
		c.failed--
		s.pending--
		s.stats.Reissued++
	} else {
		i = s.newSub()
		s.subs[i].offset = c.offset
	}
	sb := &s.subs[i]
	first := !again && c.offset == 0
	sb.cmd, sb.length, sb.wire, sb.under, sb.granted = p.cmd, p.length, p.wire, true, now
	sb.small = s.isSmall(c)
	all, small := s.live()
	sb.alone = all == small
	c.active++
	f.posted++
	k.began = k.served
	k.served += float64(p.wire) / float64(k.Weight)
	k.Granted++
	s.stats.Granted++
	if first {
		k.Waits.Add(uint64(max(now-c.since, 0)))
	}
	if c.Kind == Put {
		s.sending += p.wire
		s.out.take(p.wire)
	} else {
		s.solicit(sb, f, k)
	}
	if s.cfg.Policy == Deficit {
		f.deficit -= p.wire
	}
	f.passes = 0
	if s.due == p.flow && c.Kind != Put {
		s.due = none
	}
	if s.duePut == p.flow && c.Kind == Put {
		s.duePut = none
	}
	if !again {
		c.offset += p.length
		if c.Kind != Get || c.offset == c.Length {
			s.issued(p.cmd)
		}
	}
	return Sub(i) | Sub(sb.gen&genMask)<<24
}

func (s *Shaper) solicit(sb *sub, f *flow, k *class) {
	s.outstanding += sb.wire
	if sb.small {
		s.small += sb.wire
	}
	f.ordPktActive++
	k.Outstanding += sb.wire
	k.Solicited += uint64(sb.wire)
	s.gets++
	s.stats.Solicited += uint64(sb.wire)
	s.in.take(sb.wire)
}

// back returns the credit of a sub-request.
func (s *Shaper) back(i int32) {
	sb := &s.subs[i]
	s.endLoan(sb)
	s.unstrand(sb)
	sb.under = false
	c := &s.cmds[sb.cmd]
	f, k := &s.flows[c.flow], &s.classes[c.Class]
	c.active--
	f.posted--
	if c.Kind == Put {
		s.sending -= sb.wire
		return
	}
	s.outstanding -= sb.wire
	if sb.small {
		s.small -= sb.wire
	}
	f.ordPktActive--
	k.Outstanding -= sb.wire
	s.gets--
}

// Timeless reports whether it makes no difference at what time a request packet completes: no other
// waits for its credit, its delay is not measured, and its flow has no others that are expected
// as long as the flow is heard.
func (s *Shaper) Timeless(id Sub) bool {
	i, ok := s.sub(id)
	return ok && !s.Held() && !s.cfg.Tune && s.flows[s.cmds[s.subs[i].cmd].flow].posted == 1
}

// Completed handles the completion of a request packet that succeeded, and returns its request.
// A second one is ignored, and ok is false.
func (s *Shaper) Completed(id Sub, now time.Duration) (r Request, ok bool) {
	i, ok := s.sub(id)
	if !ok {
		return none, false
	}
	sb := &s.subs[i]
	late := sb.lent || sb.stranded
	s.back(i)
	at := sb.cmd
	c := &s.cmds[at]
	if c.Kind != Put {
		s.hear(c.flow, now)
	}
	if s.cfg.Tune && c.Kind == Get && !sb.small && !late {
		all, small := s.live()
		s.tune.sample(sb, now, all == small)
		s.stats.Probes = s.tune.probes
	}
	s.dropSub(i)
	s.settle(at)
	s.ready(c.flow)
	return Request(at), true
}

// Failed handles a request packet that ended in error, was flushed or could not be posted; it
// returns false if id is not outstanding. If again is set, a piece of a GET waits for its flow
// to be up, and only that piece goes again. Otherwise its request ends, and the part that was
// not granted never is.
func (s *Shaper) Failed(id Sub, again bool) bool {
	i, ok := s.sub(id)
	if !ok {
		return false
	}
	s.back(i)
	s.stats.Failed++
	sb := &s.subs[i]
	at := sb.cmd
	c := &s.cmds[at]
	f := &s.flows[c.flow]
	if again && c.Kind == Get && !c.broken && !c.dropped {
		sb.gen++ // what comes of its first use is not of the second
		s.retry(f, i)
		c.failed++
		s.pending++
		s.ready(c.flow)
		return true
	}
	s.dropSub(i)
	c.broken = true
	s.forgetFailed(at)
	if !c.sliced {
		s.issued(at)
	}
	s.settle(at)
	s.idle(c.flow)
	s.ready(c.flow)
	return true
}

// retry puts a piece into the retry buffer of its flow, which is in the order of the requests.
// Most pieces fail in that order.
func (s *Shaper) retry(f *flow, i int32) {
	l := &f.failed
	if l.head == none || s.earlier(i, l.head) {
		if s.subs[i].next = l.head; l.head == none {
			l.tail = i
		}
		l.head = i
		return
	}
	at := l.tail
	if s.earlier(i, at) {
		for at = l.head; !s.earlier(i, s.subs[at].next); {
			at = s.subs[at].next
		}
	}
	if s.subs[i].next = s.subs[at].next; at == l.tail {
		l.tail = i
	}
	s.subs[at].next = i
}

// earlier reports whether a piece comes before another one of its flow.
func (s *Shaper) earlier(i, k int32) bool {
	a, b := &s.subs[i], &s.subs[k]
	if a.cmd != b.cmd {
		return s.cmds[a.cmd].seq < s.cmds[b.cmd].seq
	}
	return a.offset < b.offset
}

// FailAll calls Failed for everything outstanding of a flow. Its queue pair was reset or
// closed, so that no completion will come.
func (s *Shaper) FailAll(f Flow, again bool) {
	for i := range s.subs {
		if sb := &s.subs[i]; sb.under && s.cmds[sb.cmd].flow == int32(f) {
			s.Failed(Sub(i)|Sub(sb.gen&genMask)<<24, again)
		}
	}
}

// forgetFailed drops the pieces of a request that wait to be issued again.
func (s *Shaper) forgetFailed(at int32) {
	c := &s.cmds[at]
	if c.failed == 0 {
		return
	}
	f := &s.flows[c.flow]
	for i := f.failed.head; i != none; {
		sub, next := i, s.subs[i].next
		if s.subs[sub].cmd == at {
			f.failed.unlink(sub, s.nextFailed)
			s.dropSub(sub)
		}
		i = next
	}
	s.pending -= c.failed
	c.failed = 0
}

// RequestOf returns the request of an outstanding request packet.
func (s *Shaper) RequestOf(id Sub) (Request, bool) {
	i, ok := s.sub(id)
	if !ok {
		return none, false
	}
	return Request(s.subs[i].cmd), true
}

// Held reports whether anything waits to be granted.
func (s *Shaper) Held() bool { return s.pending > 0 }
