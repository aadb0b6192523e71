//go:build simhca && linux && cgo

package pacer_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// The device tests run on the unchanged libmlx5 too, over devices that are simulated
// below it: there a READ is over in a microsecond, and many more schedules are seen.

func init() {
	if os.Getenv("SIMHCA") != "" {
		simulated = []string{"mlx5_0", "mlx5_1"}
	}
}

// storm posts, fails, recovers and closes at random.
type storm struct {
	*rig
	rng     *rand.Rand
	cqs     [2]*verbs.CQ
	qs      []stormQP
	next    uint64
	added   uint64 // FETCH_ADDs that succeeded
	perhaps uint64 // and those with an unknown outcome
	told    int
	ended   [2]int // successes, failures
}

type stormQP struct {
	*pacer.QP
	peer    *verbs.QP
	b       *pacer.Batch
	reissue bool
	broken  bool
	order   []stormRequest
}

type stormRequest struct {
	id       uint64
	signaled bool
	add      bool
	op       verbs.WCOpcode
	length   int
}

func (s *storm) open() (q stormQP) {
	q.reissue = s.rng.IntN(2) == 0
	q.QP, q.peer = s.paced(s.cqs[s.rng.IntN(2)], verbs.QPConfig{MaxSendWR: 32, MaxSendSGE: 2}, pacer.FlowConfig{Class: s.rng.IntN(2), Weight: s.rng.IntN(3), Priority: s.rng.IntN(3), Reissue: q.reissue})
	b, err := q.NewBatch(8)
	require.NoError(s.t, err)
	q.b = b
	return q
}

func (s *storm) post(q *stormQP) {
	var added []stormRequest
	for range 1 + s.rng.IntN(6) {
		s.next++
		r := stormRequest{id: s.next, signaled: s.rng.IntN(4) > 0}
		var flags verbs.SendFlags
		if r.signaled {
			flags |= verbs.Signaled
		}
		if s.rng.IntN(8) == 0 {
			flags |= verbs.Fence
		}
		q.b.Class = s.rng.IntN(2)
		at := s.b.mr.Region()
		switch s.rng.IntN(5) {
		case 0:
			r.op, r.length = verbs.WCWrite, s.rng.IntN(5000)
			q.b.Add(verbs.WR{ID: r.id, Flags: flags, Op: verbs.WRWrite, Remote: at.At(500000), Local: []verbs.SGE{s.a.mr.SGE(0, r.length)}})
		case 1:
			r.op, r.add, r.length = verbs.WCFetchAdd, true, 8
			q.b.Add(verbs.WR{ID: r.id, Flags: flags, Op: verbs.WRFetchAdd, Remote: at.At(memory - 8), Value: 1, Local: []verbs.SGE{s.a.mr.SGE(memory-8, 8)}})
		default:
			r.op, r.length = verbs.WCRead, []int{0, 8, 512, 4096, s.rng.IntN(60000)}[s.rng.IntN(5)]
			cut := s.rng.IntN(r.length + 1)
			q.b.Add(verbs.WR{ID: r.id, Flags: flags, Op: verbs.WRRead, Remote: at.At(0), Local: []verbs.SGE{s.a.mr.SGE(10000, cut), s.a.mr.SGE(10000+cut, r.length-cut)}})
		}
		added = append(added, r)
	}
	n, err := q.b.Post()
	if err != nil {
		require.ErrorIs(s.t, err, verbs.ErrQueueFull)
	}
	q.order = append(q.order, added[:n]...)
}

// take takes what completed: each is the next one of its queue pair that is told, but
// for PUTs, which may overtake.
func (s *storm) take(wcs []verbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		open, found := false, false
		for k := range s.qs {
			q := &s.qs[k]
			if q.QP.QP().Num() != wc.QPNum() {
				continue
			}
			open = true
			for at, r := range q.order {
				if r.id != wc.ID() {
					if r.op != verbs.WCWrite && wc.Status() == verbs.WCSuccess && r.signaled && wc.Opcode() != verbs.WCWrite {
						s.t.Fatalf("%d overtook %d", wc.ID(), r.id)
					}
					continue
				}
				found = true
				s.told++
				if wc.Status() == verbs.WCSuccess {
					s.ended[0]++
					require.True(s.t, r.signaled, "an unsignaled success")
					require.Equal(s.t, r.op, wc.Opcode())
					if r.op == verbs.WCRead {
						require.Equal(s.t, r.length, wc.Len())
					}
					if r.add {
						s.added++
					}
				} else {
					s.ended[1]++
					if r.add {
						s.perhaps++
					}
				}
				rest := append([]stormRequest(nil), q.order[at+1:]...)
				for _, silent := range q.order[:at] { // what was not signaled is over
					if silent.signaled || wc.Status() != verbs.WCSuccess || wc.Opcode() == verbs.WCWrite {
						rest = append(rest, stormRequest{})
						copy(rest[1:], rest)
						rest[0] = silent
					} else if silent.add {
						s.perhaps++
					}
				}
				q.order = sorted(rest)
				break
			}
		}
		// What was over before its queue pair was closed may be taken after that.
		require.True(s.t, found || !open, "%d (%v, %v) is nobody's, or was told before", wc.ID(), wc.Opcode(), wc.Status())
	}
}

func sorted(r []stormRequest) []stormRequest {
	for i := range r {
		for k := i; k > 0 && r[k].id < r[k-1].id; k-- {
			r[k], r[k-1] = r[k-1], r[k]
		}
	}
	return r
}

func (s *storm) poll() {
	var wcs [16]verbs.WC
	for i := range s.qs {
		n, err := s.qs[i].Poll(wcs[:s.rng.IntN(17)])
		require.NoError(s.t, err)
		s.take(wcs[:n])
	}
}

func (s *storm) step() {
	q := &s.qs[s.rng.IntN(len(s.qs))]
	switch p := s.rng.IntN(1000); {
	case p < 500:
		s.post(q)
	case p < 940:
		s.poll()
	case p < 950:
		require.NoError(s.t, simhca.Hold(s.a.dev.Name(), q.QP.QP().Num(), time.Duration(s.rng.IntN(500))*time.Microsecond))
	case p < 958:
		if !q.broken {
			q.broken = true
			require.NoError(s.t, simhca.Fail(s.a.dev.Name(), q.QP.QP().Num(), s.rng.IntN(20), uint32(verbs.WCRetryExceeded)))
		}
	case p < 966:
		q.broken = true
		require.NoError(s.t, q.QP.QP().ToError())
	case p < 978:
		s.reconnect(q.QP, q.peer)
		q.broken = false
	case p < 984:
		for _, r := range q.order {
			if r.add {
				s.perhaps++
			}
		}
		require.NoError(s.t, q.Close())
		*q = s.open()
	case p < 992:
		require.NoError(s.t, s.p.Reconfigure(s.limits()))
	default:
		s.p.Pause(s.rng.IntN(2) == 0)
	}
}

func (s *storm) limits() pacer.Config {
	c := pacer.Config{MTU: 1024, Slice: []int{-1, 1024, 4096, 16384}[s.rng.IntN(4)], Threshold: []int64{1, 6000, 40000, 1 << 20}[s.rng.IntN(4)], Units: 1 + s.rng.IntN(5),
		Policy: pacer.Policy(s.rng.IntN(3)), Tune: s.rng.IntN(4) == 0, Classes: []pacer.Class{{Name: "a"}, {Name: "b", Priority: s.rng.IntN(2)}}}
	if s.rng.IntN(3) == 0 {
		c.Rate, c.Burst = 50e6, 40000
	}
	if s.rng.IntN(3) == 0 {
		c.Outbound, c.OutBurst = 20e6, 10000
	}
	return c
}

// finish has all that is under way end. Failures that were asked for may be still to
// come: they break queue pairs once more.
func (s *storm) finish() {
	for i := range s.qs {
		q := &s.qs[i]
		for tries := 0; ; tries++ {
			s.reconnect(q.QP, q.peer)
			left := func() bool {
				s.poll()
				return slices.ContainsFunc(q.order, func(r stormRequest) bool { return r.signaled })
			}
			for end := time.Now().Add(200 * time.Millisecond); left() && time.Now().Before(end); {
				runtime.Gosched()
			}
			if !left() && q.Read(within(s.t), s.b.mr.Region().At(0), s.a.mr.SGE(0, 8)) == nil {
				break
			}
			require.Less(s.t, tries, 30, "%+v", q.order)
		}
		for _, r := range q.order {
			if r.add {
				s.perhaps++
			}
		}
	}
}

// Whatever fails, is recovered, closed or reconfigured: each request is told once, under
// its number, as what it was; nothing that is not over is told as a success; and all
// credit comes back.
func TestSimulatedStorm(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	s := &storm{rng: rand.New(rand.NewPCG(testseed.New(t), 5))}
	s.rig = newRig(t, s.limits())
	before := verbs.Uint64(s.b.mr.Bytes(), memory-8)
	for i := range s.cqs {
		s.cqs[i] = s.cq()
	}
	for range 4 {
		s.qs = append(s.qs, s.open())
	}
	span := 800 * time.Millisecond
	if !testing.Short() {
		span = 30 * time.Second
	}
	steps := 0
	for end := time.Now().Add(span); time.Now().Before(end); steps++ {
		s.step()
	}
	s.p.Pause(false)
	require.NoError(t, s.p.Reconfigure(pacer.Config{Classes: make([]pacer.Class, 2)}))
	s.finish()
	s.idle()
	got := verbs.Uint64(s.b.mr.Bytes(), memory-8) - before
	require.GreaterOrEqual(t, got, s.added)
	require.LessOrEqual(t, got, s.added+s.perhaps)
	t.Logf("%d steps, %d requests, %d succeeded, %d failed, %d pieces were issued again", steps, s.next, s.ended[0], s.ended[1], s.p.Stats().Reissued)
	require.Positive(t, s.ended[0])
	require.Positive(t, s.ended[1])
}

// A queue pair that gets no responses holds up the others for a moment, and what it asked
// for comes in the end.
func TestSimulatedSilentPeer(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	r := newRig(t, pacer.Config{Slice: 4096, Threshold: 20000, Overdue: 50 * time.Millisecond})
	silent, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	lively, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	start := time.Now()
	require.NoError(t, simhca.Hold(r.a.dev.Name(), silent.QP().Num(), time.Second))
	post(t, silent, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 100000))
	require.NoError(t, lively.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(200000, 100000)))
	require.Less(t, time.Since(start), 800*time.Millisecond)
	require.NoError(t, one(t, silent).Err())
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	require.Positive(t, r.p.Stats().Overdue)
	r.idle()
}

// Credit that is kept, or waits for a dead server, does not stop READs of queue pairs while
// the threshold is tuned.
func TestSimulatedCreditThatIsKept(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	r := newRig(t, pacer.Config{Tune: true})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	kept, err := r.p.Acquire(within(t), 0, 16<<10)
	require.NoError(t, err)
	for r.p.Stats().Probes < 2 {
		require.NoError(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(0, 100000)))
	}
	kept.Release()
	r.idle()
}

// The completion of a READ that was under way before its queue was wrapped says nothing
// about READs of the pacer.
func TestSimulatedWrapOfOneInUse(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	for _, other := range []bool{false, true} { // the READ under way is of another queue pair
		r := newRig(t, pacer.Config{})
		cq := r.cq()
		connected := func() *verbs.QP {
			qp, err := r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, qp.Close()) })
			r.connect(qp, r.peer())
			return qp
		}
		qp := connected()
		raw := qp
		if other {
			raw = connected()
		}
		require.NoError(t, simhca.Hold(r.a.dev.Name(), raw.Num(), 100*time.Millisecond))
		b, err := raw.NewBatch(1)
		require.NoError(t, err)
		b.Read(0, verbs.Signaled, r.b.mr.Region().At(0), r.a.mr.SGE(0, 8))
		_, err = b.Post()
		require.NoError(t, err)
		q, err := r.p.Wrap(qp, cq, pacer.FlowConfig{})
		require.NoError(t, err)
		require.NoError(t, simhca.Hold(r.a.dev.Name(), qp.Num(), 500*time.Millisecond))
		const n = 4096
		post(t, q, 77, r.b.mr.Region().At(1000), r.a.mr.SGE(100000, n))
		wc := one(t, q)
		require.NoError(t, wc.Err())
		require.EqualValues(t, 77, wc.ID())
		require.Equal(t, r.b.mr.Bytes()[1000:][:n], r.a.mr.Bytes()[100000:][:n])
		require.NoError(t, q.Close())
	}
}

// READs that wait to be issued again are not told; what was lost with them is, at once,
// and the queue pair says that it has ended.
func TestSimulatedReissueTellsOfTheRest(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	r := newRig(t, pacer.Config{})
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{Reissue: true})
	done := q.QP().Done()
	require.NoError(t, simhca.Fail(r.a.dev.Name(), q.QP().Num(), 0, uint32(verbs.WCRetryExceeded)))
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 64)}})
	b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRFetchAdd, Remote: r.b.mr.Region().At(memory - 8), Value: 1, Local: []verbs.SGE{r.a.mr.SGE(memory-8, 8)}})
	_, err = b.Post()
	require.NoError(t, err)
	wc := one(t, q)
	require.EqualValues(t, 2, wc.ID())
	require.Equal(t, verbs.WCFlushed, wc.Status())
	select {
	case <-done:
	case <-time.After(stuck):
		t.Fatal("it has not ended")
	}
	r.reconnect(q, peer)
	wc = one(t, q)
	require.EqualValues(t, 1, wc.ID())
	require.NoError(t, wc.Err())
	r.idle()
}
