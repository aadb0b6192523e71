package shaper

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// model is what a shaper must keep to, kept in the simplest way: lists.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	s    *Shaper
	now  time.Duration
	reqs map[Request]*modelReq
	out  []modelSub
	old  []Sub // over: their places are used again
	seq  map[Flow]int

	stats    Stats // Granted, Solicited, Reissued and Failed
	classes  [2]ClassStats
	flows    []Flow
	down     map[Flow]bool
	finished int
}

type modelReq struct {
	Command
	flow    Flow
	seq     int
	next    int // bytes granted in order
	active  int
	failed  map[int]int // offset: length, to go again
	broken  bool
	started bool
	gone    bool // cancelled or failed: nothing more goes
}

type modelSub struct {
	Grant
	wire  int64
	small bool
}

func (m *model) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("at %v: %s", m.now, fmt.Sprintf(format, args...))
}

func randomConfig(r *rand.Rand) Config {
	c := Config{
		MTU: []int{256, 1024, 4096}[r.IntN(3)], Header: 66, Slice: []int{-1, 1024, 4096, 16384}[r.IntN(4)],
		Threshold: []int64{1, 600, 5000, 40000, 1 << 20}[r.IntN(5)], Units: 1 + r.IntN(6), Ord: []int{1, 3, 128}[r.IntN(3)],
		Device: []int{0, 5}[r.IntN(2)], Policy: Policy(r.IntN(int(policies))),
		MaxPasses: 1 + r.IntN(8), Small: 300, Tune: r.IntN(4) == 0,
		Overdue: []time.Duration{0, -1, 2 * time.Millisecond}[r.IntN(3)],
		Classes: []Class{{Name: "bulk", Weight: 1 + r.IntN(3), Cap: []int64{0, 8000}[r.IntN(2)]}, {Name: "fast", Weight: 2, Priority: r.IntN(2)}},
	}
	c.Reserve = min(c.Threshold, []int64{1, 500, 2000}[r.IntN(3)])
	if r.IntN(3) == 0 {
		c.Rate, c.Burst = 5e6, 30000
	}
	if r.IntN(3) == 0 {
		c.Outbound, c.OutBurst = 5e6, 9000
	}
	return c
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 7)), reqs: map[Request]*modelReq{}, seq: map[Flow]int{}, down: map[Flow]bool{}}
	s, err := New(randomConfig(m.rng))
	require.NoError(t, err)
	m.s = s
	for range 1 + m.rng.IntN(12) {
		m.addFlow()
	}
	return m
}

func (m *model) addFlow() {
	f, err := m.s.AddFlow(FlowConfig{Weight: 1 + m.rng.IntN(3), Priority: m.rng.IntN(3), MaxReads: 1 + m.rng.IntN(16), Depth: 1 + m.rng.IntN(20)})
	require.NoError(m.t, err)
	m.flows = append(m.flows, f)
	m.seq[f], m.down[f] = 0, false
}

func (m *model) submit() {
	if len(m.flows) == 0 {
		return
	}
	f := m.flows[m.rng.IntN(len(m.flows))]
	c := Command{Kind: Kind(m.rng.IntN(3)), Length: []int{0, 8, 300, 1000, 5000, 20000, 100000}[m.rng.IntN(7)], Class: m.rng.IntN(2), Fence: m.rng.IntN(8) == 0, Tag: m.rng.Uint64()}
	r, err := m.s.Submit(f, c, m.now)
	require.NoError(m.t, err)
	if m.reqs[r] != nil {
		m.fatal("request %d is in use", r)
	}
	if c.Kind == Atomic {
		c.Length = 8
	}
	m.seq[f]++
	m.reqs[r] = &modelReq{Command: c, flow: f, seq: m.seq[f], failed: map[int]int{}}
}

// unissued reports whether something of a request has not been granted.
func (q *modelReq) unissued() bool {
	if q.gone {
		return false
	}
	return !q.started || len(q.failed) > 0 || q.Kind == Get && q.next < q.Length
}

// queued reports whether not all of a request has been granted once.
func (q *modelReq) queued() bool {
	return !q.gone && (!q.started || q.Kind == Get && q.next < q.Length)
}

// drain takes all that may go now, and checks each.
func (m *model) drain() (n int) {
	for {
		g, ok := m.s.Next(m.now)
		if !ok {
			return n
		}
		n++
		m.granted(g, m.s.Threshold())
		if n > 100000 {
			m.fatal("no end of grants")
		}
	}
}

func (m *model) granted(g Grant, threshold int64) {
	q := m.reqs[g.Request]
	c := m.s.Config()
	switch {
	case q == nil || q.Tag != g.Tag || q.flow != g.Flow || q.Kind != g.Kind:
		m.fatal("%+v is of nobody", g)
	case q.gone:
		m.fatal("%+v was withdrawn", g)
	case m.down[g.Flow]:
		m.fatal("%+v on a queue pair in error", g)
	case m.s.paused:
		m.fatal("%+v while paused", g)
	}
	again := false
	if n, ok := q.failed[g.Offset]; ok && n == g.Length && q.started {
		again = true
		delete(q.failed, g.Offset)
	} else {
		want := q.Length - q.next
		if q.Kind == Get && c.Slice > 0 {
			want = min(want, c.Slice)
		}
		if g.Offset != q.next || g.Length != want || g.First == q.started {
			m.fatal("%+v, want %d bytes at %d", g, want, q.next)
		}
		q.next += g.Length
		q.started = true
	}
	reads, posted, device := 0, 0, 0
	var out, small, classOut int64
	for _, o := range m.out {
		of := m.reqs[o.Request]
		if o.Flow == g.Flow {
			posted++
		}
		if o.Kind == Put {
			continue
		}
		device++
		if o.Flow == g.Flow {
			reads++
		}
		if m.s.subs[o.Sub&(1<<24-1)].lent { // overdue: it counts no more
			if g.Flow == o.Flow && g.Kind != Put {
				m.fatal("%+v of a flow of which %+v is overdue", g, o)
			}
			continue
		}
		if of.Class == q.Class {
			classOut += o.wire
		}
		if m.s.probes() && m.s.subs[o.Sub&(1<<24-1)].stranded { // a probe waited for it in vain
			continue
		}
		out += o.wire
		if o.small {
			small += o.wire
		}
	}
	fc := m.s.flows[g.Flow].FlowConfig
	if posted >= fc.Depth {
		m.fatal("%+v: %d outstanding", g, posted)
	}
	wire := c.RspPktLen(g.Length)
	isSmall := q.Length <= c.Small
	if g.Kind != Put {
		switch {
		case reads >= min(fc.MaxReads, c.Ord):
			m.fatal("%+v: %d READs outstanding", g, reads)
		case c.Device > 0 && device >= c.Device:
			m.fatal("%+v: %d READs of the device", g, device)
		case c.Classes[q.Class].Cap > 0 && classOut > 0 && classOut+wire > c.Classes[q.Class].Cap:
			m.fatal("%+v: class has %d", g, classOut)
		case !isSmall && out-small > 0 && out+wire > threshold-c.Reserve:
			m.fatal("%+v: %d of %d outstanding, %d small", g, out, threshold, small)
		case !isSmall && out-small == 0 && wire <= threshold-c.Reserve && out+wire > threshold:
			m.fatal("%+v: %d of %d outstanding by small ones", g, out, threshold)
		case isSmall && out+wire > threshold && small > 0 && small+wire > c.Reserve:
			m.fatal("%+v: small, %d of %d outstanding", g, out, threshold)
		}
		m.stats.Solicited += uint64(wire)
		m.classes[q.Class].Solicited += uint64(wire)
	}
	m.stats.Granted++
	m.classes[q.Class].Granted++
	if again {
		m.stats.Reissued++
	}
	m.ordered(g, q, again)
	if r, ok := m.s.RequestOf(g.Sub); !ok || r != g.Request {
		m.fatal("%+v is said to be of request %d, %v", g, r, ok)
	}
	q.active++
	m.out = append(m.out, modelSub{g, wire, isSmall})
}

// ordered checks that only what may be overtaken was.
func (m *model) ordered(g Grant, q *modelReq, again bool) {
	for _, o := range m.reqs {
		if o.flow != g.Flow || o.seq >= q.seq || !o.unissued() || again {
			continue
		}
		get := func(k Kind) bool { return k != Put }
		overtakes := !get(q.Kind) && get(o.Kind) && !q.Fence && !o.Fence
		onlyFailed := o.started && (o.Kind != Get || o.next == o.Length)
		if !overtakes && !(onlyFailed && !q.Fence) {
			m.fatal("%+v (%+v) overtakes %+v", g, q.Command, o.Command)
		}
	}
}

// check compares what is counted.
func (m *model) check() {
	var out, small, sending int64
	classes := make([]int64, m.s.Classes())
	for _, o := range m.out {
		if o.Kind == Put {
			sending += o.wire
			continue
		}
		out += o.wire
		if o.small {
			small += o.wire
		}
		classes[m.reqs[o.Request].Class] += o.wire
	}
	if m.s.Outstanding() != out || m.s.small != small || m.s.Sending() != sending || m.s.alive != len(m.reqs) {
		m.fatal("outstanding %d, small %d, sending %d, alive %d; want %d, %d, %d, %d", m.s.Outstanding(), m.s.small, m.s.Sending(), m.s.alive, out, small, sending, len(m.reqs))
	}
	held := false
	queued := make([]int, len(classes))
	for _, q := range m.reqs {
		held = held || q.unissued()
		if q.queued() {
			queued[q.Class]++
		}
	}
	if m.s.Held() != held {
		m.fatal("held is %v, want %v", m.s.Held(), held)
	}
	for i, want := range classes {
		st, c := m.s.ClassStats(i), m.classes[i]
		if st.Outstanding != want || st.Queued != queued[i] || st.Granted != c.Granted || st.Solicited != c.Solicited {
			m.fatal("class %d has %+v, want %d outstanding, %d queued, %+v", i, st, want, queued[i], c)
		}
	}
	if st := m.s.Stats(); st.Granted != m.stats.Granted || st.Solicited != m.stats.Solicited || st.Reissued != m.stats.Reissued || st.Failed != m.stats.Failed {
		m.fatal("counted %+v, want %+v", st, m.stats)
	}
	for r, q := range m.reqs {
		why := m.s.Explain(r, m.now)
		switch {
		case why == None || why == Finished:
			if q.unissued() {
				m.fatal("%+v is held, and not explained", q.Command)
			}
		case !q.unissued():
			m.fatal("%+v is not held, explained as %v", q.Command, why)
		}
	}
}

// collect takes what finished.
func (m *model) collect() {
	for {
		r, tag, complete, ok := m.s.Finished()
		if !ok {
			return
		}
		q := m.reqs[r]
		switch {
		case q == nil || q.Tag != tag:
			m.fatal("request %d finished, which is nobody's", r)
		case q.active > 0:
			m.fatal("%+v finished with %d outstanding", q.Command, q.active)
		case complete && (q.broken || q.unissued()):
			m.fatal("%+v is not complete", q.Command)
		case !complete && !q.broken:
			m.fatal("%+v is complete", q.Command)
		}
		delete(m.reqs, r)
		m.s.Free(r)
		m.finished++
	}
}

// end has one sub-request complete, fail or be flushed.
func (m *model) end(i int, fails bool) {
	o := m.out[i]
	m.out = append(m.out[:i], m.out[i+1:]...)
	q := m.reqs[o.Request]
	q.active--
	if !fails {
		r, ok := m.s.Completed(o.Sub, m.now)
		require.True(m.t, ok)
		require.Equal(m.t, o.Request, r)
	} else {
		again := m.rng.IntN(2) == 0
		require.True(m.t, m.s.Failed(o.Sub, again))
		m.stats.Failed++
		if again && q.Kind == Get && !q.gone {
			q.failed[o.Offset] = o.Length
		} else {
			q.broken, q.gone = true, true
			clear(q.failed)
		}
	}
	// The same completion again belongs to no request, now and later.
	m.old = append(m.old, o.Sub)
	for _, sub := range []Sub{o.Sub, m.old[m.rng.IntN(len(m.old))]} {
		_, ok := m.s.Completed(sub, m.now)
		require.False(m.t, ok)
		require.False(m.t, m.s.Failed(sub, false))
		_, ok = m.s.RequestOf(sub)
		require.False(m.t, ok)
	}
}

func (m *model) step() {
	m.now += time.Duration(m.rng.IntN(300)) * time.Microsecond
	switch p := m.rng.IntN(100); {
	case p < 40:
		m.submit()
	case p < 78:
		if n := len(m.out); n > 0 {
			m.end(m.rng.IntN(n), m.rng.IntN(12) == 0)
		}
	case p < 82:
		for r, q := range m.reqs {
			m.s.Cancel(r)
			q.broken = q.broken || q.unissued()
			q.gone = true
			clear(q.failed)
			break
		}
	case p < 86:
		if len(m.flows) > 0 {
			f := m.flows[m.rng.IntN(len(m.flows))]
			if m.down[f] = !m.down[f]; m.down[f] {
				m.s.Down(f)
			} else {
				m.s.Up(f)
			}
		}
	case p < 89:
		require.NoError(m.t, m.s.Reconfigure(randomConfig(m.rng), m.now))
	case p < 91:
		m.s.Pause(!m.s.paused)
	case p < 95:
		if len(m.flows) > 0 {
			i := m.rng.IntN(len(m.flows))
			f := m.flows[i]
			busy := false
			for _, q := range m.reqs {
				busy = busy || q.flow == f
			}
			if busy && m.rng.IntN(2) == 0 {
				m.s.Abandon(f)
				for _, q := range m.reqs {
					if q.flow == f {
						q.broken = q.broken || q.unissued()
						q.gone = true
						clear(q.failed)
					}
				}
				return
			}
			if m.s.RemoveFlow(f) {
				if busy {
					m.fatal("a busy flow is removed")
				}
				m.flows = append(m.flows[:i], m.flows[i+1:]...)
			} else if !busy {
				m.fatal("an idle flow is not removed")
			}
		}
	case p < 97:
		m.addFlow()
	case p < 98 && len(m.flows) > 0: // a queue pair is reset
		f, again := m.flows[m.rng.IntN(len(m.flows))], m.rng.IntN(2) == 0
		m.s.FailAll(f, again)
		rest := m.out[:0]
		for _, o := range m.out {
			q := m.reqs[o.Request]
			switch {
			case o.Flow != f:
				rest = append(rest, o)
				continue
			}
			m.stats.Failed++
			switch {
			case again && q.Kind == Get && !q.gone:
				q.failed[o.Offset] = o.Length
			default:
				q.broken, q.gone = true, true
				clear(q.failed)
			}
			q.active--
		}
		m.out = rest
	case p == 99:
		m.now += probeTime
	}
}

// finish lets everything end: all that is held goes, and no credit is left.
func (m *model) finish() {
	m.s.Pause(false)
	for _, f := range m.flows {
		if m.down[f] { // the others go on without being told anything
			m.s.Up(f)
		}
		m.down[f] = false
	}
	for stuck := 0; len(m.reqs) > 0; {
		n := m.drain()
		for len(m.out) > 0 {
			m.end(m.rng.IntN(len(m.out)), false)
		}
		m.collect()
		if n > 0 {
			stuck = 0
			continue
		}
		at, ok := m.s.Wake()
		if stuck++; stuck > 3 && !ok || stuck > 1000 {
			m.fatal("%d requests are held by nothing", len(m.reqs))
		}
		m.now = max(m.now, at)
	}
	if m.s.stranded != 0 || m.s.lent != 0 || m.s.lentSmall != 0 || m.s.lentGets != 0 || m.s.Held() || m.s.Outstanding() != 0 || m.s.small != 0 || m.s.Sending() != 0 || m.s.gets != 0 || m.s.alive != 0 {
		m.fatal("credit is left: %d, %d, %d, %d", m.s.Outstanding(), m.s.small, m.s.Sending(), m.s.gets)
	}
	for _, f := range m.flows {
		fl := &m.s.flows[f]
		if fl.ordPktActive != 0 || fl.posted != 0 || fl.unit != none || fl.waits {
			m.fatal("flow %d keeps %+v", f, fl)
		}
		require.True(m.t, m.s.RemoveFlow(f))
	}
}

func run(t *testing.T, seed uint64, steps int) (finished int) {
	m := newModel(t, seed)
	for range steps {
		m.step()
		m.drain()
		m.check()
		m.collect()
		m.check()
	}
	m.finish()
	return m.finished
}

// Credits are conserved in every schedule: what is outstanding is what was granted
// and has not come back, no limit is exceeded, all of each request goes once, in
// order, and nothing is held for ever.
func TestCreditsAreConserved(t *testing.T) {
	seed := testseed.New(t)
	random := uint64(1000)
	if testing.Short() {
		random = 50
	}
	finished := 0
	for i := range random {
		finished += run(t, seed+i, 150)
	}
	require.Greater(t, finished, 20*int(random))
	for i := range uint64(200) { // the same ones each time
		run(t, i, 150)
	}
}
