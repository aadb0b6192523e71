// Package sim has the simulation of many requesters that GET from many servers through one
// switch, paced by the same shaper as a device or not at all.
//
// Requests of 48 bytes bring responses of 2,048 (the figures of the published design). A requester's
// link is slower than the servers' links together, so that responses wait at the switch's port
// towards it, and are dropped when its buffer is full; the requester asks again when its timer ends,
// as a reliable connection does.
package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/virtual"
	"github.com/goverbs/goverbs/pacer/internal/shaper"
)

// Config describes the network and the load. The zero value is a thousand
// requesters and 64 servers.
type Config struct {
	Requesters, Servers int
	Request, Response   int     // bytes on the wire
	Link, ServerLink    float64 // bytes in a second
	Propagation         time.Duration
	Buffer              int64 // bytes of a switch port
	Timer               time.Duration
	// Each requester makes GETs of Object bytes of random servers, Parallel at a time,
	// for the Duration.
	Object, Parallel int
	Duration         time.Duration
	// Threshold paces if it is not 0; Tune finds it.
	Threshold int64
	Tune      bool
	Seed      uint64
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Requesters, 1000)
	def(&c.Servers, 64)
	def(&c.Request, 48)
	def(&c.Response, 2048)
	def(&c.Object, 16<<10)
	def(&c.Parallel, 16)
	if c.Link == 0 {
		c.Link = 25e9 / 8
	}
	if c.ServerLink == 0 {
		// The servers together are four times as fast as the requesters together.
		c.ServerLink = 4 * c.Link * float64(c.Requesters) / float64(c.Servers)
	}
	if c.Propagation == 0 {
		c.Propagation = time.Microsecond
	}
	if c.Buffer == 0 {
		c.Buffer = 128 << 10
	}
	if c.Timer == 0 {
		c.Timer = 500 * time.Microsecond
	}
	if c.Duration == 0 {
		c.Duration = 5 * time.Millisecond
	}
	return c
}

// Result is the result of a simulation.
type Result struct {
	Goodput            float64       // responses that were wanted, as a part of the requesters' links
	P50, P99           time.Duration // of GETs, from when the program asks
	Probe50, Probe99   time.Duration // of GETs of 64 bytes, one at a time beside them
	Queue50, Queue99   int64         // bytes in the switch's port that a response finds
	QueueMax           int64
	Dropped, Responses int
	Completed          int // GETs
	Fairness           float64
	Queue              []Sample // of the first requester's port, in time
}

// Sample is the length of a queue at a time.
type Sample struct {
	At    time.Duration
	Bytes int64
}

type eventKind uint8

const (
	arriveServer eventKind = iota // a request
	arriveSwitch                  // a response
	arriveHome
	expire
	probe
)

const (
	probeBytes = 64
	probePause = 20 * time.Microsecond
)

type event struct {
	kind   eventKind
	from   int32 // requester
	server int32
	sub    shaper.Sub
	bytes  int32 // of the response
}

// link sends what it is given one after the other.
type link struct {
	rate float64
	free time.Duration
}

func (l *link) send(now time.Duration, bytes int) (at time.Duration) {
	l.free = max(l.free, now) + time.Duration(float64(bytes)/l.rate*float64(time.Second))
	return l.free
}

func (l *link) queue(now time.Duration) int64 {
	return int64(max(l.free-now, 0).Seconds() * l.rate)
}

type requester struct {
	s     *shaper.Shaper
	up    link // to the switch
	port  link // of the switch, to it
	flows []shaper.Flow
	quick []shaper.Flow // of probes, which have queue pairs of their own
	began map[shaper.Request]time.Duration
	got   int64
}

type world struct {
	Config
	virtual.Queue[event]
	rng        *rand.Rand
	requesters []requester
	servers    []link
	latencies  []time.Duration
	probes     []time.Duration
	queues     []int64
	out        Result
}

func (w *world) after(d time.Duration, e event) { w.Add(w.Now+d, e) }

// Run runs a simulation.
func Run(cfg Config) (Result, error) {
	w := &world{Config: cfg.withDefaults()}
	w.rng = rand.New(rand.NewPCG(w.Seed, 11))
	w.requesters = make([]requester, w.Requesters)
	w.servers = make([]link, w.Servers)
	for i := range w.servers {
		w.servers[i].rate = w.ServerLink
	}
	const unbounded = 1 << 40
	c := shaper.Config{MTU: w.Response, Header: 1, Slice: w.Response, Threshold: w.Threshold, Tune: w.Tune, TuneMax: 1 << 20, Small: probeBytes, Ord: 1 << 20}
	if w.Threshold == 0 && !w.Tune {
		c.Threshold = unbounded
	}
	for i := range w.requesters {
		r := &w.requesters[i]
		s, err := shaper.New(c)
		if err != nil {
			return Result{}, err
		}
		*r = requester{s: s, up: link{rate: w.Link}, port: link{rate: w.Link}, began: map[shaper.Request]time.Duration{}}
		for range w.Servers {
			f, err := s.AddFlow(shaper.FlowConfig{})
			if err != nil {
				return Result{}, err
			}
			r.flows = append(r.flows, f)
			if f, err = s.AddFlow(shaper.FlowConfig{}); err != nil {
				return Result{}, err
			}
			r.quick = append(r.quick, f)
		}
		for range w.Parallel {
			w.want(r)
		}
		w.look(r)
	}
	for i := range w.requesters {
		w.issue(i)
	}
	for e, ok := w.Next(w.Duration); ok; e, ok = w.Next(w.Duration) {
		w.handle(e)
	}
	return w.result(), nil
}

// want starts a GET of a random server.
func (w *world) want(r *requester) {
	q, _ := r.s.Submit(r.flows[w.rng.IntN(w.Servers)], shaper.Command{Kind: shaper.Get, Length: w.Object}, w.Now)
	r.began[q] = w.Now
}

// look starts a GET of 64 bytes.
func (w *world) look(r *requester) {
	q, _ := r.s.Submit(r.quick[w.rng.IntN(w.Servers)], shaper.Command{Kind: shaper.Get, Length: probeBytes, Tag: 1}, w.Now)
	r.began[q] = w.Now
}

// issue sends the requests of requester i that may go.
func (w *world) issue(i int) {
	r := &w.requesters[i]
	for g, ok := r.s.Next(w.Now); ok; g, ok = r.s.Next(w.Now) {
		w.send(event{from: int32(i), server: int32(g.Flow) / 2, sub: g.Sub, bytes: int32(g.Length)})
	}
}

func (w *world) send(e event) {
	e.kind = arriveServer
	w.after(w.requesters[e.from].up.send(w.Now, w.Request)-w.Now+w.Propagation, e)
}

func (w *world) handle(e event) {
	r := &w.requesters[e.from]
	switch e.kind {
	case arriveServer:
		e.kind = arriveSwitch
		w.after(w.servers[e.server].send(w.Now, int(e.bytes))-w.Now+w.Propagation, e)
	case arriveSwitch:
		w.out.Responses++
		q := r.port.queue(w.Now)
		w.queues = append(w.queues, q)
		w.out.QueueMax = max(w.out.QueueMax, q)
		if e.from == 0 {
			w.out.Queue = append(w.out.Queue, Sample{w.Now, q})
		}
		if q+int64(e.bytes) > w.Buffer {
			w.out.Dropped++
			e.kind = expire
			w.after(w.Timer, e)
			return
		}
		e.kind = arriveHome
		w.after(r.port.send(w.Now, int(e.bytes))-w.Now, e)
	case expire:
		w.send(e)
	case probe:
		w.look(r)
		w.issue(int(e.from))
	case arriveHome:
		r.got += int64(e.bytes)
		r.s.Completed(e.sub, w.Now)
		for q, tag, _, ok := r.s.Finished(); ok; q, tag, _, ok = r.s.Finished() {
			took := w.Now - r.began[q]
			delete(r.began, q)
			r.s.Free(q)
			if tag == 1 {
				w.probes = append(w.probes, took)
				w.after(probePause, event{kind: probe, from: e.from})
				continue
			}
			w.latencies = append(w.latencies, took)
			w.out.Completed++
			w.want(r)
		}
		w.issue(int(e.from))
	}
}

func (w *world) result() Result {
	out := w.out
	slices.Sort(w.latencies)
	slices.Sort(w.queues)
	slices.Sort(w.probes)
	out.Probe50, out.Probe99 = at(w.probes, 0.5), at(w.probes, 0.99)
	out.P50, out.P99 = at(w.latencies, 0.5), at(w.latencies, 0.99)
	out.Queue50, out.Queue99 = at(w.queues, 0.5), at(w.queues, 0.99)
	var sum, squares float64
	for i := range w.requesters {
		x := float64(w.requesters[i].got)
		sum += x
		squares += x * x
	}
	out.Goodput = sum / (w.Link * float64(w.Requesters) * w.Duration.Seconds())
	if squares > 0 {
		out.Fairness = sum * sum / (squares * float64(w.Requesters))
	}
	return out
}

func at[T any](sorted []T, part float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}
