package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// bandwidth keeps up to Depth requests outstanding on each queue pair and asks
// for a completion of each signal-th one.
func (s *session) bandwidth(ctx context.Context, r *result) error {
	if !s.client {
		if s.p.Test == "send_bw" {
			return s.receiveAll(ctx)
		}
		return nil // the device does the work
	}
	if s.p.Test == "send_bw" && s.p.Duration > 0 {
		return fmt.Errorf("send_bw counts iterations: no -D")
	}
	return s.sendAll(ctx, r)
}

// flow is a queue pair's share of a bandwidth test.
type flow struct {
	*link
	posted, done int // requests
	slots        int // send queue slots in use
}

func (s *session) sendAll(ctx context.Context, r *result) error {
	flows := make([]flow, len(s.qps))
	for i, l := range s.qps {
		flows[i].link = l
	}
	signal := min(s.o.signal, s.p.Depth)
	wcs := make([]verbs.WC, 64)
	byQP := make(map[uint32]*flow, len(flows))
	for i := range flows {
		byQP[flows[i].qp.Num()] = &flows[i]
	}
	start := time.Now()
	end := start.Add(s.p.Duration)
	peak := time.Duration(1<<62 - 1) // shortest time of one signalled group
	lastGroup := start
	for running := true; running; {
		running = false
		stop := s.p.Duration > 0 && !time.Now().Before(end)
		for i := range flows {
			f := &flows[i]
			for !stop && f.slots+signal <= s.p.Depth && (s.p.Duration > 0 || f.posted < s.p.Iterations) {
				n := signal
				if s.p.Duration == 0 {
					n = min(n, s.p.Iterations-f.posted)
				}
				if err := s.postGroup(f, n); err != nil {
					return err
				}
			}
			running = running || f.slots > 0 || !stop && (s.p.Duration > 0 || f.posted < s.p.Iterations)
		}
		if !running {
			break
		}
		n, err := s.completions(ctx, wcs)
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
			f := byQP[wcs[i].QPNum()]
			group := int(wcs[i].ID())
			f.slots -= group
			f.done += group
			if group == signal && i == n-1 {
				now := time.Now()
				peak = min(peak, now.Sub(lastGroup)/time.Duration(group*n))
				lastGroup = now
			}
		}
		s.progress(r)
	}
	total := 0
	for i := range flows {
		total += flows[i].done
	}
	r.rate(total, s.p.Size, time.Since(start), peak)
	return nil
}

// postGroup posts n requests of which the last is signaled and carries n.
func (s *session) postGroup(f *flow, n int) error {
	local, at := f.mr.SGE(0, s.p.Size), f.remote.At(0)
	for i := range n {
		var flags verbs.SendFlags
		if i == n-1 {
			flags = verbs.Signaled
		}
		if s.o.inline > 0 && s.p.Size <= f.qp.MaxInline() && s.p.Test != "read_bw" {
			flags |= verbs.Inline
		}
		switch {
		case s.p.Test == "read_bw":
			f.batch.Read(uint64(n), flags, at, local)
		case s.p.Test == "write_bw":
			f.batch.Write(uint64(n), flags, at, local)
		case s.p.Transport == "UD":
			f.batch.SendTo(uint64(n), flags, f.to, local)
		default:
			f.batch.Send(uint64(n), flags, local)
		}
	}
	if _, err := f.batch.Post(); err != nil {
		return err
	}
	f.posted += n
	f.slots += n
	return nil
}

// completions takes some completions of sends.
func (s *session) completions(ctx context.Context, wcs []verbs.WC) (int, error) {
	return s.take(ctx, s.cq, wcs)
}

// take waits for some completions. On the only CPU of a machine polling an
// empty queue keeps the device's own work from being done, so there it parks
// even without -e.
func (s *session) take(ctx context.Context, cq *verbs.CQ, wcs []verbs.WC) (int, error) {
	if s.p.Events || oneCPU {
		return cq.Wait(ctx, wcs)
	}
	s.rest.At(time.Since(s.begun))
	for n := 0; ; n++ {
		got, err := cq.PollSpin(wcs, s.o.spins())
		if got > 0 || err != nil {
			return got, err
		}
		s.o.giveUp()
		if n%256 == 255 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// receiveAll keeps receives posted until all messages have come. Datagrams may
// be lost: the server stops when the client says that it has sent everything.
func (s *session) receiveAll(ctx context.Context) error {
	wcs := make([]verbs.WC, 64)
	byQP := make(map[uint32]*link, len(s.qps))
	for _, l := range s.qps {
		byQP[l.qp.Num()] = l
	}
	want := s.p.Iterations * len(s.qps)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.p.Transport != "RC" {
		// The client's barrier byte is its word that it is done; it stays in
		// the connection for finish.
		go func() {
			s.peerDone(ctx)
			cancel()
		}()
	}
	free := make(map[*link]int, len(s.qps))
	for got := 0; got < want; {
		n, err := s.take(ctx, s.rcq, wcs)
		if err != nil {
			if ctx.Err() != nil && s.p.Transport != "RC" {
				return nil
			}
			return err
		}
		got += n
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
			l := byQP[wcs[i].QPNum()]
			if free[l]++; free[l] == s.depth()/4 {
				free[l] = 0
				if err := s.postReceives(l, s.depth()/4); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// peerDone returns when the peer has sent a byte or is gone, without reading
// it.
func (s *session) peerDone(ctx context.Context) {
	for ctx.Err() == nil && !s.readable() {
		time.Sleep(10 * time.Millisecond)
	}
}
