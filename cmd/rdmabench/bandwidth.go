package main

import (
	"cmp"
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// sender keeps requests outstanding on each queue pair.
type sender struct {
	q      queue
	op     verbs.WCOpcode
	signal int // each so many requests one is signaled
	list   int // requests in one post; 0: as many as there is room for
	flows  []flow
	wcs    []verbs.WC
	trace  *trace

	completed  int // messages
	messages   int // of these, those that are measured
	measuring  bool
	begun, end int64 // of what is measured
}

// flow is a queue pair's share of a bandwidth test.
type flow struct {
	l              *link
	batch          *verbs.Batch
	depth          int
	size           int
	flags          verbs.SendFlags
	area           uint64
	stride, places int

	limit        int // requests to post in all
	posted, done int
	unsignaled   int // since the last signaled one
}

func newSender(s *session) *sender {
	b := &sender{q: s.queue(s.cq), signal: s.o.signalEvery(s.p.Size), list: min(s.o.list, s.o.depth), wcs: make([]verbs.WC, 64)}
	switch s.p.Test {
	case "read_bw":
		b.op = verbs.WCRead
	case "write_bw":
		b.op = verbs.WCWrite
	default:
		b.op = verbs.WCSend
	}
	stride, places := s.stride()
	for _, l := range s.links {
		b.flows = append(b.flows, flow{l: l, depth: s.o.depth, size: s.p.Size, flags: s.flags(l), area: uint64(s.area()),
			stride: stride, places: places})
	}
	return b
}

// reset forgets what was sent for the warm-up, and prepares to trace the rest.
func (b *sender) reset(p params) {
	if n := p.Iterations * p.QPs; p.Duration == 0 && n <= maxTraced {
		b.trace = newTrace(n)
	}
}

func (b *sender) prepare(sp span) error {
	b.completed, b.messages = 0, 0
	for i := range b.flows {
		f := &b.flows[i]
		f.posted, f.done, f.unsignaled, f.limit = 0, 0, 0, forever
		if sp.until == 0 {
			f.limit = sp.n
		}
		if f.batch == nil {
			var err error
			if f.batch, err = f.l.qp.NewBatch(min(cmp.Or(b.list, f.depth), f.l.qp.MaxSendWR())); err != nil {
				return err
			}
		}
	}
	return nil
}

// run posts and completes requests until sp ends.
func (b *sender) run(ctx context.Context, sp span, m *meter) error {
	if err := b.prepare(sp); err != nil {
		return err
	}
	now := clock()
	b.begun, b.end, b.measuring = now, 0, sp.until == 0
	for {
		if sp.until != 0 {
			b.measure(sp, now)
			if now >= sp.until {
				b.stop()
			}
		}
		outstanding, err := b.post(now)
		if err != nil {
			return err
		}
		if !outstanding {
			if b.end == 0 {
				b.end = now
			}
			return nil
		}
		n, err := b.q.take(ctx, b.wcs)
		now = clock()
		if err != nil {
			return err
		}
		if err := b.complete(n, now); err != nil {
			return err
		}
		if now-b.q.rested > restTime {
			if err := b.q.rest(ctx, now); err != nil {
				return err
			}
			if m != nil {
				m.show(b.completed)
			}
		}
	}
}

// measure begins and ends what is measured of a test that runs for a time.
func (b *sender) measure(sp span, now int64) {
	switch {
	case !b.measuring && b.end == 0 && now >= sp.from:
		b.begun, b.measuring = now, true
	case b.measuring && now >= sp.to:
		b.end, b.measuring = now, false
	}
}

// stop lets each queue pair end with a signaled request.
func (b *sender) stop() {
	for i := range b.flows {
		f := &b.flows[i]
		if f.limit == forever {
			f.limit = (f.posted + b.signal - 1) / b.signal * b.signal
		}
	}
}

// post fills each queue pair up, and reports whether anything is outstanding.
func (b *sender) post(now int64) (outstanding bool, err error) {
	for i := range b.flows {
		f := &b.flows[i]
		for room := f.room(); room > 0; room = f.room() {
			n := min(room, f.batch.Cap())
			if b.list > 0 && f.waits(n, b.list) {
				break
			}
			for range n {
				b.add(f, uint64(i))
			}
			if b.trace != nil {
				b.trace.post(n, now)
			}
			if _, err := f.batch.Post(); err != nil {
				return false, err
			}
		}
		outstanding = outstanding || f.posted > f.done
	}
	return outstanding, nil
}

// waits reports whether n requests, for which there is room, wait until there is
// room for a whole list. The last ones do not, nor do those without which
// nothing that is outstanding would complete.
func (f *flow) waits(n, list int) bool {
	return n < list && n < f.limit-f.posted && f.unsignaled < f.posted-f.done
}

func (f *flow) room() int { return min(f.depth-(f.posted-f.done), f.limit-f.posted) }

// add adds a request. Its number holds the index of its flow and for how many it
// completes.
func (b *sender) add(f *flow, index uint64) {
	flags := f.flags
	f.unsignaled++
	id := index<<32 | uint64(f.unsignaled)
	if f.posted++; f.posted%b.signal == 0 || f.posted == f.limit {
		flags |= verbs.Signaled
		f.unsignaled = 0
	}
	off := f.posted % f.places * f.stride
	local := f.l.mr.SGE(off, f.size)
	switch {
	case b.op == verbs.WCRead:
		f.batch.Read(id, flags, f.l.remote.At(f.area+uint64(off)), local)
	case b.op == verbs.WCWrite:
		f.batch.Write(id, flags, f.l.remote.At(f.area+uint64(off)), local)
	case f.l.to.AH != nil:
		f.batch.SendTo(id, flags, f.l.to, local)
	default:
		f.batch.Send(id, flags, local)
	}
}

func (b *sender) complete(n int, now int64) error {
	for i := range b.wcs[:n] {
		wc := &b.wcs[i]
		if err := wc.Err(); err != nil {
			return err
		}
		group := int(uint32(wc.ID()))
		b.flows[wc.ID()>>32].done += group
		b.completed += group
		if b.measuring {
			b.messages += group
		}
		if b.trace != nil {
			b.trace.complete(group, now)
		}
	}
	return nil
}
