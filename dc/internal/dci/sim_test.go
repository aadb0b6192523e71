package dci

import (
	"errors"
	"slices"
	"time"
)

// hwJob is a request of a random program on the hardware back end.
type hwJob struct {
	to       *hwPeer
	order    int // of posting, for its target
	executed int
	ended    int
	err      error
	taken    bool // back, while it waited
}

type hwPeer struct {
	Peer
	dead         bool // does not answer
	queue        []*hwJob
	posted       int
	lastExecuted int
	lastEnded    int
}

// hwDevice is the model of a device with DCIs: requests of one stream are
// carried out in order, those of different streams whenever they are. A stream
// with a failed request flushes what is behind it; a DCI with too many such
// streams flushes everything.
type hwDevice struct {
	w       *world
	core    *Machine
	dcis    []hwDCI
	errored int  // streams in error before the DCI is
	mortal  bool // DCIs may be beyond recovery
	aborts  bool // requests that the device has are given up
	all     []*hwJob
	peers   map[*Peer]*hwPeer
}

type hwDCI struct {
	streams []hwStream
	dead    bool
	doomed  bool // a stream of it could not be reset
	ring    []*hwJob
	next    uint64
	resets  int
}

type hwStream struct {
	queue []hwEntry
	bad   bool
	busy  bool
}

type hwEntry struct {
	number uint64
	job    *hwJob
}

func (v *hwDevice) post(p *hwPeer) {
	j := &hwJob{to: p, order: p.posted}
	p.posted++
	v.all = append(v.all, j)
	if !v.core.Place(&p.Peer) {
		j.ended, j.err = 1, errFlushed
		return
	}
	if v.core.Admit(&p.Peer, 1) == 1 {
		v.transmit(p, j)
	} else {
		p.queue = append(p.queue, j)
		v.core.Enqueue(&p.Peer, 1)
	}
	v.settle()
}

// cancel takes a request back that waits.
func (v *hwDevice) cancel(p *hwPeer, k int) {
	if len(p.queue) == 0 {
		return
	}
	k %= len(p.queue)
	j := p.queue[k]
	p.queue = slices.Delete(p.queue, k, k+1)
	j.ended, j.err, j.taken = j.ended+1, errors.New("canceled"), true
	v.core.Withdraw(&p.Peer, 1)
	v.settle()
}

// abort: the requests of a peer that the device has are not waited for.
func (v *hwDevice) abort(p *hwPeer) {
	v.aborts = true
	before := len(v.core.Actions)
	v.core.Abort(&p.Peer)
	for _, a := range v.core.Actions[before:] {
		if a.Kind == Abort {
			v.dcis[a.DCI.Index].doomed = true
		}
	}
	v.settle()
}

// transmit is what the driver does with a batch.
func (v *hwDevice) transmit(p *hwPeer, j *hwJob) {
	d := p.dci
	x := &v.dcis[d.Index]
	if d.state != ready {
		v.w.Wrong("posted to a DCI in state %d", d.state)
	}
	number := d.Number(0)
	if old := x.ring[x.next%uint64(len(x.ring))]; old != nil {
		v.w.Wrong("a request overwrites one that has not completed")
	}
	x.ring[x.next%uint64(len(x.ring))] = j
	x.next++
	v.core.Posted(&p.Peer)
	s := &x.streams[p.stream]
	s.queue = append(s.queue, hwEntry{number, j})
	v.work(d.Index, p.stream)
}

// work carries out the oldest request of a stream.
func (v *hwDevice) work(i, stream int) {
	x := &v.dcis[i]
	s := &x.streams[stream]
	if s.busy || len(s.queue) == 0 {
		return
	}
	s.busy = true
	resets := x.resets
	v.w.After(time.Duration(1+v.w.rng.IntN(200))*time.Microsecond, func() {
		if x.resets != resets {
			v.w.Wrong("DCI reset with requests in it")
			return
		}
		s.busy = false
		e := s.queue[0]
		s.queue = s.queue[1:]
		x.ring[(e.number&(1<<placeBits-1))%uint64(len(x.ring))] = nil
		failed := true
		switch {
		case s.bad || x.dead:
			e.job.err = errFlushed
			if v.w.rng.IntN(2) == 0 {
				v.execute(e.job) // carried out before the error came back
			}
		case e.job.to.dead || v.w.rng.Float64() < v.w.loss:
			e.job.err = errors.New("failed")
			s.bad = true
			bad := 0
			for k := range x.streams {
				if x.streams[k].bad {
					bad++
				}
			}
			x.dead = x.dead || bad >= v.errored
		default:
			failed = false
			v.execute(e.job)
		}
		v.end(e.job, failed)
		if _, ok := v.core.Completed(e.number, failed); !ok {
			v.w.Wrong("completion of nothing")
		}
		if _, ok := v.core.Completed(e.number, failed); ok {
			v.w.Wrong("one completion counted twice")
		}
		v.settle()
		v.work(i, stream)
	})
}

func (v *hwDevice) execute(j *hwJob) {
	j.executed++
	if j.order < j.to.lastExecuted {
		v.w.Wrong("request %d carried out after %d", j.order, j.to.lastExecuted)
	}
	j.to.lastExecuted = j.order
}

func (v *hwDevice) end(j *hwJob, failed bool) {
	j.ended++
	if j.order < j.to.lastEnded {
		v.w.Wrong("request %d completed after %d", j.order, j.to.lastEnded)
	}
	j.to.lastEnded = j.order
	if !failed && j.executed == 0 {
		v.w.Wrong("success without being carried out")
	}
}

// settle is what the driver does after each event.
func (v *hwDevice) settle() {
	for len(v.core.Actions) > 0 {
		a := v.core.Actions[0]
		v.core.Actions = v.core.Actions[1:]
		v.act(a)
	}
	if v.w.rng.IntN(4) == 0 { // the driver is busy with something else
		v.w.After(time.Duration(v.w.rng.IntN(300))*time.Microsecond, v.pump)
		return
	}
	v.pump()
}

func (v *hwDevice) pump() {
	for i := range v.core.DCIs {
		for {
			p, n := v.core.Turn(&v.core.DCIs[i])
			if p == nil {
				break
			}
			to := v.peers[p]
			for range n {
				v.transmit(to, to.queue[0])
				to.queue = to.queue[1:]
			}
		}
	}
}

func (v *hwDevice) act(a Action) {
	delay := time.Duration(v.w.rng.IntN(500)) * time.Microsecond
	switch a.Kind {
	case Check:
		dead := v.dcis[a.DCI.Index].dead
		v.w.After(delay, func() { v.core.Checked(a, dead); v.settle() })
	case Abort:
		x := &v.dcis[a.DCI.Index]
		if !x.dead && !x.doomed {
			v.w.Wrong("a DCI that works was aborted")
		}
		x.dead = true
	case ResetStream:
		v.w.After(delay, func() {
			x := &v.dcis[a.DCI.Index]
			s := &x.streams[a.Stream]
			var err error
			switch {
			case x.dead:
				err = errors.New("the DCI is in error")
			case !s.bad:
				v.w.Wrong("reset of a stream that works")
			case len(s.queue) > 0:
				v.w.Wrong("stream reset with %d requests in it", len(s.queue))
			case v.w.rng.IntN(10) == 0:
				err = errors.New("no stream reset")
			default:
				s.bad = false
			}
			x.doomed = err != nil
			v.core.StreamReset(a, err)
			v.settle()
		})
	case Recover:
		v.w.After(delay, func() {
			x := &v.dcis[a.DCI.Index]
			for k := range x.streams {
				if len(x.streams[k].queue) > 0 {
					v.w.Wrong("DCI reset with requests in it")
				}
			}
			var err error
			if v.mortal && v.w.rng.IntN(3) == 0 {
				err = errors.New("no way back")
			} else {
				x.dead, x.doomed = false, false
				x.resets++
				for k := range x.streams {
					x.streams[k].bad = false
				}
			}
			v.core.Recovered(a.DCI, err)
			v.settle()
		})
	case GiveUp:
		to := v.peers[a.Peer]
		for _, j := range to.queue {
			j.err = a.Err
			v.end(j, true)
		}
		to.queue = nil
	}
}
