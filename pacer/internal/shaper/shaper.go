package shaper

import (
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/histogram"
)

// Shaper is the state of one pacer. The zero value is not ready: see New.
type Shaper struct {
	cfg     Config
	classes []class

	cmds           []command
	free, finished list
	alive          int // commands submitted and not freed

	flows []flow

	units   []int32  // the flow that each is assigned to, or none
	busy    uint64   // which are assigned
	pending int      // commands that are not granted as a whole, and pieces that failed
	turns   []uint64 // when each was assigned, or granted last: the first one is the next in turn
	clock   uint64   // counts assignments and grants
	urgent  list     // flows that wait for a unit
	waiting list
	popped  int
	present [MaxUnits]candidate
	quantum int64 // bytes of the deficit policy, for a weight of 1

	subs     []sub
	freeSub  list
	firstGen uint32 // of each place: random, unlike numbers that a program gives its requests

	outstanding int64 // response bytes, wire
	small       int64 // of which of small requests
	lent        int64 // of outstanding, which are overdue
	lentSmall   int64 // of small
	lentGets    int   // of gets
	stranded    int64 // of outstanding, which probes of the tuner do not wait for
	lapseAt     time.Duration
	sending     int64 // bytes of PUTs
	gets        int   // GETs and atomics outstanding
	due         int32 // the flow with GETs that others wait for
	duePut      int32 // and the one with PUTs
	paused      bool
	in, out     bucket
	wake        time.Duration // when a bucket has enough, if something waits for it
	tune        tuner
	stats       Stats
}

// Stats and ClassStats are those of package pacer, which says what the fields are.
type Stats struct {
	Outstanding, Sending, Threshold int64
	Alive                           int
	Granted, Solicited, Passes      uint64
	Reissued, Failed, Probes        uint64
	Floods, Overdue                 uint64
}

type ClassStats struct {
	Name                       string
	Outstanding                int64
	Queued                     int
	Granted, Solicited, Passes uint64
	Waits                      histogram.Counts
}

type class struct {
	Class
	ClassStats
	lent   int64
	queued int     // commands in flow queues
	served float64 // bytes by weight: the class with the least goes first
	began  float64 // served, when it was granted last
	last   int     // the unit that was granted last, for the deficit policy
}

// bucket is a token bucket.
type bucket struct {
	rate   float64 // bytes in a second; 0 is no bound
	burst  int64
	tokens float64
	at     time.Duration
}

const never = 100 * 365 * 24 * time.Hour

func (b *bucket) refill(now time.Duration) {
	if b.rate == 0 {
		b.at = now
	} else if now > b.at {
		b.tokens = min(b.tokens+b.rate*(now-b.at).Seconds(), float64(b.burst))
		b.at = now
	}
}

// has reports whether n bytes may go, and if not, when. More bytes than the bucket holds may go
// when it is full.
func (b *bucket) has(n, extra int64) (bool, time.Duration) {
	if b.rate == 0 {
		return true, 0
	}
	lack := float64(min(n, b.burst)-extra) - b.tokens
	if lack <= 0 {
		return true, 0
	}
	// At a rate of nearly 0 it is never, for all practical purposes.
	return false, b.at + time.Duration(min(lack/b.rate*float64(time.Second), float64(never))) + 1
}

func (b *bucket) take(n int64) {
	if b.rate > 0 {
		b.tokens -= float64(n)
	}
}

// New returns a shaper.
func New(c Config) (*Shaper, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return nil, err
	}
	empty := list{none, none}
	s := &Shaper{free: empty, finished: empty, urgent: empty, waiting: empty, freeSub: empty, due: none, duePut: none, firstGen: rand.Uint32()}
	s.adopt(c)
	s.in.tokens, s.out.tokens = float64(c.Burst), float64(c.OutBurst)
	return s, nil
}

// Reconfigure changes all limits while requests are under way. What is outstanding
// stays counted: a lower threshold takes effect as responses come. There may be more
// classes than before, not fewer.
func (s *Shaper) Reconfigure(c Config, now time.Duration) error {
	c, err := c.WithDefaults()
	if err != nil {
		return err
	}
	if len(c.Classes) < len(s.classes) {
		return ErrConfig
	}
	s.in.refill(now)
	s.out.refill(now)
	s.adopt(c)
	return nil
}

func (s *Shaper) adopt(c Config) {
	for i := range c.Classes {
		if i == len(s.classes) {
			s.classes = append(s.classes, class{})
		}
		s.classes[i].Class = c.Classes[i]
	}
	s.in.set(c.Rate, c.Burst)
	s.out.set(c.Outbound, c.OutBurst)
	if c.Tune {
		s.tune.begin(&c, s.cfg.Tune)
	}
	s.cfg = c
	s.quantum = c.RspPktLen(max(c.Slice, c.MTU))
	s.resize(c.Units)
}

func (b *bucket) set(rate float64, burst int64) {
	if b.rate == 0 && rate > 0 {
		b.tokens = float64(burst)
	}
	b.rate, b.burst = rate, burst
	b.tokens = min(b.tokens, float64(burst))
}

// Config returns the configuration, with defaults filled in.
func (s *Shaper) Config() Config { return s.cfg }

// Tunes reports whether the threshold is found from delays.
func (s *Shaper) Tunes() bool { return s.cfg.Tune }

// Small returns the length up to which a request is small.
func (s *Shaper) Small() int { return s.cfg.Small }

// Threshold returns how many response bytes may be outstanding now.
func (s *Shaper) Threshold() int64 {
	if s.cfg.Tune {
		return s.tune.threshold()
	}
	return s.cfg.Threshold
}

// Pause holds everything: the link partner asks for it by priority flow control, or
// the program.
func (s *Shaper) Pause(on bool) { s.paused = on }

// Outstanding returns the response bytes outstanding.
func (s *Shaper) Outstanding() int64 { return s.outstanding }

// Sending returns the bytes of PUTs outstanding.
func (s *Shaper) Sending() int64 { return s.sending }

// Stats returns the counters and gauges.
func (s *Shaper) Stats() Stats {
	st := s.stats
	st.Outstanding, st.Sending, st.Threshold, st.Alive = s.outstanding, s.sending, s.Threshold(), s.alive
	return st
}

// ClassStats returns those of class i.
func (s *Shaper) ClassStats(i int) ClassStats {
	c := s.classes[i].ClassStats
	c.Name, c.Queued = s.classes[i].Class.Name, s.classes[i].queued
	return c
}

// Classes returns the number of classes.
func (s *Shaper) Classes() int { return len(s.classes) }

// current returns the virtual time of a priority: the largest served of its classes at the start
// of their last grants. A class that becomes busy starts there, whether others have
// anything queued at that moment or not (start-time fair queueing).
func (s *Shaper) current(priority int) (at float64) {
	for i := range s.classes {
		if o := &s.classes[i]; o.Priority == priority {
			at = max(at, o.began)
		}
	}
	return at
}
