package shaper

import "time"

// tuner finds the threshold from the delay of sub-requests. A sub-request that is
// alone takes the base delay; with more outstanding, delay grows by what waits in
// front of this host. The threshold grows by a sub-request a round while that is
// less than 1.5 of them, and shrinks in proportion beyond. A round is a threshold of
// responses that were asked for behind all that the one before it left under way: what
// came into an emptier queue, or goes back to another threshold, would have it grow
// beyond what the link's queue holds. The base delay is measured
// once a second, by letting everything outstanding come in (as BBR does): a link that
// changed its rate is seen then at the latest.
type tuner struct {
	one    int64 // bytes of a full sub-request
	max    int64
	window int64

	base     time.Duration // mean delay alone, of this period or else the last
	alones   time.Duration // and of what
	nAlone   time.Duration
	renewed  time.Duration
	probing  int // sub-requests to be measured alone yet
	probes   uint64
	starting bool // doubles each round

	round  time.Duration // when it began
	from   time.Duration // when the first response came that was asked for in it
	bytes  int64         // of those that came later
	count  int64         // of all of them
	sum    time.Duration
	rate   float64
	filled bool // the window held something in this round
}

const (
	period    = time.Second
	perProbe  = 2
	probeTime = period / 4
	queueGoal = 1.5 // sub-requests that wait
)

func (t *tuner) begin(c *Config, running bool) {
	length := c.Slice
	if length < 0 {
		length = 16 << 10
	}
	t.one = c.RspPktLen(length)
	t.max = max(c.TuneMax, 2*t.one)
	if !running {
		t.window, t.starting = c.Threshold, true
	}
	t.window = min(max(t.window, t.least()), t.max)
}

// least keeps one sub-request on the wire while another one is on its way, and a third
// for a host that is late in asking for the next.
func (t *tuner) least() int64 { return 3*t.one + t.one/2 }

func (t *tuner) threshold() int64 {
	if t.probing > 0 {
		return 0
	}
	return t.window
}

// sample records a completed sub-request that is not small. drained is whether no other
// one is outstanding.
func (t *tuner) sample(sb *sub, now time.Duration, drained bool) {
	delay := now - sb.granted
	if sb.granted > t.round {
		if t.count++; t.count == 1 {
			t.from = now
		} else {
			t.bytes += sb.wire
		}
		t.sum += delay
	}
	if sb.alone && drained {
		t.alone(delay, now)
	}
	if t.renewed == 0 || now-t.renewed >= period {
		t.renewed = now
		t.alones, t.nAlone = 0, 0
		t.probing = perProbe
		t.probes++
	}
	switch {
	case t.probing > 0: // what is measured now is no load
	case t.round == 0:
		t.newRound(now)
	case t.bytes >= t.window && now > t.from:
		t.judge(now)
		t.newRound(now)
	}
}

// Congested records that the interface could not absorb what came: it halves the threshold, and
// the search by delay begins anew from there.
func (s *Shaper) Congested(now time.Duration) {
	s.stats.Floods++
	t := &s.tune
	t.starting = false
	t.window = max(t.window/2, t.least())
	t.newRound(now)
}

func (t *tuner) alone(delay, now time.Duration) {
	t.alones += delay
	t.nAlone++
	t.base = t.alones / t.nAlone
	if t.probing > 0 {
		if t.probing--; t.probing == 0 {
			t.newRound(now)
		}
	}
}

func (t *tuner) newRound(now time.Duration) {
	t.round, t.bytes, t.count, t.sum, t.filled = now, 0, 0, 0, false
}

// judge adjusts the window at the end of a round.
func (t *tuner) judge(now time.Duration) {
	rate := float64(t.bytes) / (now - t.from).Seconds()
	if rate >= t.rate {
		t.rate = rate
	} else {
		t.rate += (rate - t.rate) / 4
	}
	if t.base == 0 {
		return
	}
	delay := t.sum / time.Duration(t.count)
	goal := t.base + time.Duration(queueGoal*float64(t.one)/t.rate*float64(time.Second))
	switch {
	case delay > goal:
		t.starting = false
		less := int64(float64(t.window) * max(float64(goal)/float64(delay), 0.5))
		t.window = max(less, t.least())
	case !t.filled:
		// Nothing waited: more would not be used.
	case t.starting:
		t.window = min(2*t.window, t.max)
	default:
		t.window = min(t.window+t.one+t.window/32, t.max)
	}
}
