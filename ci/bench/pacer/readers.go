package pacer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// readers are queue pairs that READ all the time, and one that READs a little every
// 2 ms: with a pacer, or in one of the ways that programs do without.
type readers struct {
	queuePairs int
	size       int // of a READ
	depth      int // READs of a queue pair at a time; 0 means 1
	window     int // bytes of all at a time, the probe's included; 0 means any number
	small      int // of the READ beside them; 0 means 64 bytes, and less that there is none
	class      int // of it
	pacer      *pacer.Config
	rate       float64 // of the link, bits in a second; 0 means as it is
	then       float64 // its rate after 2 s, and 2 s before it is measured; 0 means the same
	queue      int     // of the link, bytes
	span       time.Duration
}

// mark is how far the bulk READs were when one of the first queue pair completed, and the
// small ones.
type mark struct {
	at           time.Time
	bytes, small int64
}

const (
	probeEvery = 2 * time.Millisecond
	warm       = 200 * time.Millisecond
	adapting   = 2 * time.Second
)

// poster is what a READ takes: a queue pair's batch, paced or not.
type poster interface {
	Add(r verbs.WR)
	Post() (int, error)
}

// run is a pass under way.
type run struct {
	readers
	batches []poster // the last one is the probe's
	wait    func(ctx context.Context, wcs []verbs.WC) (int, error)
	local   *verbs.MR
	remote  verbs.Region
	closers []io.Closer

	out    int   // bytes
	waits  []int // for the window
	bytes  []int64
	few    int64 // bytes of small READs
	failed []bool
	turns  int // READs of the first queue pair that have completed
	first  mark
	last   mark
	probe  time.Time // when it began; zero if none is under way
	took   []int64   // ns
}

func (r readers) pass(ctx context.Context) (v []float64, err error) {
	v = make([]float64, perValues)
	unlimit, err := limit(r.rate, r.queue)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, unlimit()) }()
	s := &run{readers: r}
	defer func() {
		for _, c := range slices.Backward(s.closers) {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := s.open(); err != nil {
		return v, err
	}
	if err := s.until(ctx, warm); err != nil {
		return v, err
	}
	if r.then > 0 {
		if err := s.until(ctx, adapting); err != nil {
			return v, err
		}
		if r.rate = r.then; lab.Topology() == "wire" {
			if err := lab.LimitIngressQueue("h0", int64(r.rate), r.queue); err != nil {
				return v, err
			}
		}
		if err := s.until(ctx, adapting); err != nil {
			return v, err
		}
	}
	clear(s.bytes)
	s.took, s.turns, s.few = s.took[:0], 0, 0
	start := time.Now()
	if err := s.until(ctx, r.span); err != nil {
		return v, err
	}
	seconds := time.Since(start).Seconds()
	var sum, squares float64
	for i, n := range s.bytes {
		sum += float64(n)
		squares += float64(n) * float64(n)
		if s.failed[i] {
			v[qpErrors]++
		}
	}
	if !s.probe.IsZero() {
		s.took = append(s.took, int64(time.Since(s.probe)))
	}
	slices.Sort(s.took)
	rate, small := s.perSecond(sum/seconds, float64(s.few)/seconds)
	v[goodput] = rate / 1e6
	v[linkBytes] = (rate*r.perByte(r.size) + small*r.perByte(s.length(r.queuePairs))) / 1e6
	if r.rate > 0 {
		v[ofLink] = rate / (r.rate / 8)
	}
	if len(s.took) > 0 {
		v[probeP99] = float64(s.took[len(s.took)*99/100]) / 1e6
	}
	if squares > 0 {
		v[jain] = sum * sum / (squares * float64(len(s.bytes)))
	}
	return v, nil
}

// perByte returns what the link carries for a byte of READs of n bytes, in RoCE v2 over IPv4:
// packets of 4,096 bytes with the headers of Ethernet, IP, UDP and the transport, and the
// latter's checksum. The first and the last of a response have four bytes more.
func (r readers) perByte(n int) float64 {
	const header, more = 14 + 20 + 8 + 12 + 4, 4
	one := n // of a response
	if r.pacer != nil && r.pacer.Slice > 0 {
		one = min(n, r.pacer.Slice)
	}
	packets := (one + 4095) / 4096
	return float64(one+packets*header+min(packets, 2)*more) / float64(one)
}

// perSecond returns the rates of bulk and small bytes: as counted, unless marks cover enough.
// Queue pairs that share evenly complete their READs at about the same time, half a
// megabyte at once; from one READ of the same queue pair to another there are whole
// rounds of all.
func (s *run) perSecond(bulk, small float64) (float64, float64) {
	covered := s.last.at.Sub(s.first.at)
	if s.turns < 3 || covered < s.span/2 {
		return bulk, small
	}
	return float64(s.last.bytes-s.first.bytes) / covered.Seconds(), float64(s.last.small-s.first.small) / covered.Seconds()
}

func (s *run) open() error {
	c, f, err := rig.NewHosts()
	if err != nil {
		return err
	}
	n := s.queuePairs
	s.closers = append(s.closers, c.PD.Device(), f.PD.Device(), c.PD, f.PD, c.MR, f.MR)
	if s.local, err = c.PD.AllocMR(1<<20, verbs.MRConfig{}); err != nil {
		return err
	}
	far, err := f.PD.AllocMR(1<<20, verbs.MRConfig{Access: verbs.RemoteRead})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.local, far)
	s.remote = far.Region()
	cq, err := c.PD.Device().CreateCQ(verbs.CQConfig{Depth: 4096})
	if err != nil {
		return err
	}
	idle, err := f.PD.Device().CreateCQ(verbs.CQConfig{PollOnly: true})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, cq, idle)
	s.wait = cq.Wait
	var p *pacer.Pacer
	if s.pacer != nil {
		cfg := *s.pacer
		if p, err = pacer.New(cfg); err != nil {
			return err
		}
		s.closers = append(s.closers, p)
	}
	for i := range n + 1 {
		a, err := c.PD.CreateQP(verbs.QPConfig{SendCQ: cq, GID: c.GID, MaxSendWR: 64, MaxRecvWR: 1})
		if err != nil {
			return err
		}
		b, err := f.PD.CreateQP(verbs.QPConfig{SendCQ: idle, GID: f.GID, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			return errors.Join(err, a.Close())
		}
		s.closers = append(s.closers, a, b)
		if err := rig.Connect(a, b); err != nil {
			return err
		}
		if p == nil {
			batch, err := a.NewBatch(1)
			if err != nil {
				return err
			}
			s.batches = append(s.batches, batch)
			continue
		}
		flow := pacer.FlowConfig{}
		if i == n {
			flow.Class = s.class
		}
		q, err := p.Wrap(a, cq, flow)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, q)
		batch, err := q.NewBatch(1)
		if err != nil {
			return err
		}
		s.batches, s.wait = append(s.batches, batch), q.Wait
	}
	s.bytes, s.failed = make([]int64, n), make([]bool, n+1)
	for range max(s.depth, 1) {
		for i := range n {
			if err := s.read(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *run) length(i int) int {
	if i == s.queuePairs {
		return cmp.Or(s.small, 64)
	}
	return s.size
}

// read posts a READ, or has it wait for the window.
func (s *run) read(i int) error {
	n := s.length(i)
	if s.window > 0 && s.out > 0 && s.out+n > s.window || len(s.waits) > 0 {
		s.waits = append(s.waits, i)
		return nil
	}
	return s.post(i)
}

func (s *run) post(i int) error {
	n := s.length(i)
	s.out += n
	s.batches[i].Add(verbs.WR{ID: uint64(i), Op: verbs.WRRead, Flags: verbs.Signaled, Remote: s.remote.At(0), Local: []verbs.SGE{s.local.SGE(0, n)}})
	_, err := s.batches[i].Post()
	return err
}

// deadline is a context that ends at a moment, and the same one for the same moment.
type deadline struct {
	at     time.Time
	ctx    context.Context
	cancel context.CancelFunc
}

func (d *deadline) under(ctx context.Context, at time.Time) context.Context {
	if at != d.at {
		d.end()
		d.at = at
		d.ctx, d.cancel = context.WithDeadline(ctx, at)
	}
	return d.ctx
}

func (d *deadline) end() {
	if d.cancel != nil {
		d.cancel()
	}
}

// until goes on for so long. It waits as long as there is nothing to do.
func (s *run) until(ctx context.Context, span time.Duration) error {
	end := time.Now().Add(span)
	var wcs [32]verbs.WC
	var d deadline
	defer d.end()
	for next := time.Now(); ; {
		now := time.Now()
		if now.After(end) {
			return nil
		}
		idle := s.probe.IsZero() && !s.failed[s.queuePairs] && s.small >= 0
		if idle && !now.Before(next) {
			s.probe, idle = now, false
			if err := s.read(s.queuePairs); err != nil {
				return err
			}
		}
		at := end
		if idle && next.Before(end) {
			at = next
		}
		n, err := s.wait(d.under(ctx, at), wcs[:])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		for k := range wcs[:n] {
			if err := s.completed(&wcs[k], &next); err != nil {
				return err
			}
		}
	}
}

func (s *run) completed(wc *verbs.WC, next *time.Time) error {
	i := int(wc.ID())
	s.out -= s.length(i)
	for len(s.waits) > 0 && (s.out == 0 || s.out+s.length(s.waits[0]) <= s.window) {
		first := s.waits[0]
		s.waits = s.waits[1:]
		if err := s.post(first); err != nil {
			return err
		}
	}
	switch {
	case wc.Status() != verbs.WCSuccess:
		s.failed[i] = true
		return nil
	case i == s.queuePairs:
		s.took = append(s.took, int64(time.Since(s.probe)))
		s.few += int64(s.length(i))
		*next = s.probe.Add(probeEvery)
		s.probe = time.Time{}
		return nil
	}
	s.bytes[i] += int64(s.size)
	if i == 0 {
		s.last = mark{at: time.Now(), small: s.few}
		for _, n := range s.bytes {
			s.last.bytes += n
		}
		if s.turns++; s.turns == 1 {
			s.first = s.last
		}
	}
	return s.read(i)
}
