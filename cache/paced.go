package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// pacedFrom is the default of PaceFrom.
const pacedFrom = 64 << 10

// partsOut is how many parts one call has under way at most.
const partsOut = 32

// paced reports whether n bytes that are READ together are READ under the pacer.
func (c *Client) paced(n int) bool { return c.cfg.PaceFrom >= 0 && n > c.cfg.PaceFrom }

// checkPacer returns an error if the configured pacer cannot pace READs by a device.
func (c *Client) checkPacer(d *verbs.Device) error {
	p := c.cfg.Pacer
	if p == nil || c.cfg.PaceFrom < 0 {
		return nil
	}
	if name := p.Device(); name != "" && name != d.Name() {
		return fmt.Errorf("%w: it is that of %s, and the connection goes by %s", ErrPacer, name, d.Name())
	}
	credit, ok, err := p.TryAcquire(0, 1)
	if ok {
		credit.Release()
	}
	return pacerError(err)
}

// pacerError hides the pacer's ErrClosed, which would match [ErrClosed] of the client.
func pacerError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %v", ErrPacer, err)
}

// flow is what one call READs under the pacer: one part after the other as there is credit, several
// of them under way at a time.
type flow struct {
	s    *session
	p    *pacer.Pacer
	ctx  context.Context
	most int // bytes of a part

	under [partsOut]readPart // way: a ring
	first int
	n     int

	// Of the part that is posted next.
	from  verbs.Region
	off   uint64
	b     *buffer
	at    int // in b, and from off
	size  int
	local [1]verbs.SGE
	reads func() []dc.Request // its READ, through an initiator
	room  [1]dc.Request       // for that

	following *flow // of those that are free
}

type readPart struct {
	credit  pacer.Credit
	read    verbs.Pending
	through passage // instead of read
}

// wait waits for the part.
func (p *readPart) wait(ctx context.Context) error {
	if p.through.used() {
		return p.through.wait(ctx)
	}
	return p.read.Wait(ctx)
}

// newFlow begins a flow, for which end must be called.
func (s *session) newFlow(ctx context.Context) (*flow, error) {
	s.mu.Lock()
	f := s.flows
	if f != nil {
		s.flows, f.following = f.following, nil
	}
	s.mu.Unlock()
	if f == nil {
		f = &flow{s: s}
		f.reads = func() []dc.Request {
			f.room[0] = readRequest(f.from.At(f.off+uint64(f.at)), f.b.mr.SGE(f.b.off+f.at, f.size))
			return f.room[:]
		}
	}
	f.ctx = ctx
	if err := f.choose(); err != nil {
		return nil, err
	}
	return f, nil
}

// choose chooses the pacer: that of the configuration, or else the device's, which its other
// users may close and make anew at any time.
func (f *flow) choose() (err error) {
	if f.p = f.s.c.cfg.Pacer; f.p == nil {
		if f.p, err = pacer.ForDevice(f.s.pd().Device()); err != nil {
			return pacerError(err)
		}
	}
	if f.most = f.p.Config().Slice; f.most <= 0 {
		f.most = 1 << 30
	}
	return nil
}

// record READs n bytes into a buffer, in as many parts as it takes.
func (f *flow) record(b *buffer, n int, from verbs.Region, off uint64) error {
	f.from, f.off, f.b = from, off, b
	for f.at = 0; f.at < n; f.at += f.size {
		f.size = min(f.most, n-f.at)
		f.local[0] = b.mr.SGE(b.off+f.at, f.size)
		if err := f.start(f.size, []verbs.WR{verbs.ReadWR(from.At(off+uint64(f.at)), f.local[:]...)}, f.reads); err != nil {
			return err
		}
	}
	return nil
}

// start posts the READs of a part when there is credit for it: list, or, through an initiator, what
// requests returns.
func (f *flow) start(bytes int, list []verbs.WR, requests func() []dc.Request) error {
	credit, err := f.credit(bytes)
	if err != nil {
		return err
	}
	part := readPart{credit: credit}
	if t := f.s.through; t != nil {
		part.through, err = t.start(requests())
	} else {
		part.read, err = f.s.read.Start(f.ctx, list...)
	}
	if err != nil {
		credit.Release()
		return err
	}
	f.s.c.count.reads.Add(uint64(len(list)))
	f.s.parts.Add(1)
	f.under[(f.first+f.n)%partsOut] = part
	f.n++
	return nil
}

// credit waits for credit. A flow with parts under way does not queue for it: no other goroutine
// would see them complete, and it may be their credit that is missing. So waiting flows come first,
// and one call has all of the threshold only while it is alone. Nor does it fill the send queue,
// for the same reason: half of that is for what is not paced.
func (f *flow) credit(bytes int) (pacer.Credit, error) {
	for {
		if f.n == 0 || f.n < partsOut && int(f.s.parts.Load()) < f.s.sendQueue()/2 {
			if c, ok, err := f.ask(bytes); ok || err != nil {
				return c, err
			}
		}
		if f.n > 0 {
			if err := f.next(); err != nil {
				return pacer.Credit{}, err
			}
		}
	}
}

// ask asks for credit, and queues for it if nothing is under way. If it returns neither credit nor
// an error it must be called again.
func (f *flow) ask(bytes int) (c pacer.Credit, ok bool, err error) {
	if c, ok, err = f.p.TryAcquire(0, bytes); !ok && err == nil && f.n == 0 {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		defer context.AfterFunc(f.s.live, cancel)() // the pacer may be paused for longer
		c, err = f.p.Acquire(ctx, 0, bytes)
		switch ok = err == nil; {
		case ok:
		case f.ctx.Err() != nil:
			return c, false, f.ctx.Err()
		case ctx.Err() != nil:
			return c, false, errEnded
		}
	}
	switch {
	case err == nil:
		return c, ok, nil
	case f.s.c.cfg.Pacer == nil && errors.Is(err, pacer.ErrClosed):
		return c, false, f.choose()
	}
	return c, false, pacerError(err)
}

// next waits for the part that was begun first, and releases its credit when it is over.
func (f *flow) next() error {
	p := &f.under[f.first]
	f.first, f.n = (f.first+1)%partsOut, f.n-1
	s, credit, err := f.s, p.credit, p.wait(f.ctx)
	if len(inFlight(err)) == 0 {
		credit.Release()
		s.parts.Add(-1)
		return err
	}
	afterwards(err, func() {
		credit.Release()
		s.parts.Add(-1)
	})
	return err
}

// end waits for everything under way, since the device may write to its memory until then, and
// returns the first error, joined with what is left under way when the context ends. The flow
// must not be used any more.
func (f *flow) end(err error) error {
	for f.n > 0 {
		if failed := f.next(); err == nil {
			err = failed
		} else if len(inFlight(failed)) > 0 {
			err = errors.Join(err, failed)
		}
	}
	f.p, f.ctx, f.b, f.first = nil, nil, nil, 0
	clear(f.under[:])
	f.s.mu.Lock()
	f.following, f.s.flows = f.s.flows, f
	f.s.mu.Unlock()
	return err
}
