package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// used is the setup of the reports here.
var used = setup{Events: true, QPs: 1, Depth: 128, List: 16, Signal: 100, MTU: 4096, Device: "rxe0", Port: 1, GIDIndex: 1,
	GID: "::ffff:10.77.0.1", Kernel: "6.1.0", CPUs: 2, Procs: 4, Go: "go1.26"}

// inJSON is the same as a report has it.
const inJSON = `"events":true,"yield":false,"qps":1,"tx_depth":128,"list":16,"signal":100,"inline":false,"warmup":0,"mtu":4096,
	"device":"rxe0","port":1,"gid_index":1,"gid":"::ffff:10.77.0.1","kernel":"6.1.0","cpus":2,"gomaxprocs":4,"go":"go1.26"`

func TestLatencyReport(t *testing.T) {
	o := parsed(t, "send_lat -s 64")
	rec := newRecorder(2, newMeter(false, nil, o.params), 1000)
	for i := range int64(1000) {
		rec.add(7, 7+2*(i+1)*1000) // half of it counts
	}
	rec.flush()
	r := newResult(o.params, used)
	r.latencies(rec)

	var out bytes.Buffer
	o.json, o.histogram = true, true
	require.NoError(t, r.print(&out, o, true))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	var rep map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &rep))
	lat := rep["lat_us"].(map[string]any)
	for name, want := range map[string]float64{"min": 1, "p50": 500, "avg": 500.5, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000} {
		require.InEpsilon(t, want, lat[name], 1e-3, name)
	}
	require.InEpsilon(t, 288.819, lat["stdev"], 1e-5, "of 1 to 1000")
	require.Equal(t, 0.0, lat["pauses"])
	require.LessOrEqual(t, lat["p99.9"], lat["max"])
	delete(rep, "lat_us")
	require.NotEmpty(t, rep["distribution"])
	delete(rep, "distribution")
	rest, err := json.Marshal(rep)
	require.NoError(t, err)
	require.JSONEq(t, `{"test":"send_lat","transport":"RC","size":64,"iterations":1000,`+inJSON+`}`, string(rest))

	out.Reset()
	o.json, o.histogram = false, false
	require.NoError(t, r.print(&out, o, true))
	require.Equal(t, `# events, lists of 16, depth 128, signaled every 100, MTU 4096, rxe0 GID 1 ::ffff:10.77.0.1, Linux 6.1.0, 2 CPUs
     bytes  iterations   min[us]   p50[us]   avg[us]   p90[us]   p99[us] p99.9[us]   max[us] stdev[us]
        64        1000      1.00    500.01    500.50    900.03    990.01    999.01   1000.00    288.82
`, out.String())
	out.Reset()
	r.lat.Pauses, r.lat.Paused = 2, 1234
	require.NoError(t, r.print(&out, o, false))
	require.Contains(t, out.String(), "# 2 pauses of 1234 us in all")
	out.Reset()
	o.histogram = true
	require.NoError(t, r.print(&out, o, false))
	require.NotContains(t, out.String(), "bytes")
	require.Contains(t, out.String(), "Percentile")
}

func TestRateReport(t *testing.T) {
	o := parsed(t, "send_bw -s 1048576 -c UC")
	b := &sender{messages: 100, completed: 120, begun: 5, end: 5 + int64(2*time.Second), trace: newTrace(100)}
	b.trace.post(100, b.begun)
	b.trace.complete(50, b.begun+int64(500*time.Millisecond))
	b.trace.complete(50, b.end)
	with := used
	with.Duration, with.Margin = 4, 1
	r := newResult(o.params, with)
	r.rate(b)
	received := uint64(119)
	r.received = &received
	var out bytes.Buffer
	require.NoError(t, r.print(&out, o, true))
	require.Equal(t, `# events, lists of 16, depth 128, signaled every 100, MTU 4096, rxe0 GID 1 ::ffff:10.77.0.1, Linux 6.1.0, 2 CPUs, measured without the first and the last 1 s of 4
     bytes  iterations   BW peak[MiB/s]   BW average[MiB/s]  MsgRate[Mpps]
   1048576         100           100.00               50.00       0.000050
# the server received 119 of 120 messages
`, out.String())
	out.Reset()
	o.json = true
	require.NoError(t, r.print(&out, o, true))
	require.JSONEq(t, `{"test":"send_bw","transport":"UC","size":1048576,"iterations":100,`+inJSON+`,"duration_s":4,"margin_s":1,
		"bw_MBps":52.4288,"bw_MiBps":50,"bw_peak_MiBps":100,"msg_rate":50,"sent":120,"received":119}`, out.String())
}

// What is measured of a test that runs for a time is what completes between the
// margins, whatever was posted before.
func TestMarginsDoNotCount(t *testing.T) {
	b := &sender{flows: make([]flow, 1), wcs: make([]verbs.WC, 1)}
	sp := span{until: 1000, from: 250, to: 750}
	for now := int64(0); now < 1000; now += 10 {
		b.measure(sp, now)
		require.NoError(t, b.complete(1, now))
	}
	require.Equal(t, []int64{250, 750}, []int64{b.begun, b.end})
	require.Zero(t, b.messages, "wcs[0] stands for no message")

	rec := newRecorder(1, newMeter(false, nil, params{}), 100)
	rec.from, rec.to = sp.from, sp.to
	for now := int64(0); now < 1000; now += 10 {
		rec.add(now, now+10)
	}
	rec.flush()
	require.Equal(t, 50, rec.count)
}

// The peak is what perftest finds by trying all pairs of posts and completions.
func TestPeak(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		tr := newTrace(100)
		var posted []int64
		now := int64(r.IntN(1e9))
		want := 1e18
		for tr.completed < 100 {
			now += int64(1 + r.IntN(1000))
			if n := min(r.IntN(8), 100-tr.posted); n > 0 {
				tr.post(n, now)
				for range n {
					posted = append(posted, now)
				}
			}
			if n := r.IntN(tr.posted - tr.completed + 1); n > 0 {
				tr.complete(n, now)
				j := tr.completed - 1
				for i := range j + 1 {
					want = min(want, float64(now-posted[i])/float64(j-i+1))
				}
			}
		}
		require.InDelta(t, want, tr.fastest(), 1e-6, "seed %d", seed)
	}
}

func TestProgressLine(t *testing.T) {
	p := parsed(t, "read_bw -n 1000 -q 2").params
	var out bytes.Buffer
	m := newMeter(true, &out, p)
	require.Contains(t, m.line(500, 10*time.Second), "500 of 2000, 30s left, until ")
	require.NotContains(t, m.line(0, time.Second), "left")
	m.show(1)
	require.Empty(t, out.String(), "not yet")
	m.shown -= int64(meterPeriod)
	m.show(1)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))

	m = newMeter(true, &out, parsed(t, "read_lat -D 60").params)
	require.Contains(t, m.line(500, 15*time.Second), "500 messages, 15s of 1m0s, 45s left, until ")
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	rec := newRecorder(1, newMeter(false, nil, params{Iterations: 1}), 500)
	ctx := context.Background()
	now := rec.begin()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for range 1000 {
			now, _ = rec.turn(ctx, now)
		}
	}))
	require.Positive(t, rec.count)
	require.Positive(t, rec.pauses, "there is room for 500")
}

// The samples of a run with -n are filed away after its end, without a pause.
func TestNoPauseAtTheEnd(t *testing.T) {
	rec := newRecorder(1, newMeter(false, nil, params{Iterations: 500}), 500)
	now := rec.begin()
	for range 500 {
		now, _ = rec.turn(context.Background(), now)
	}
	rec.flush()
	require.Equal(t, 500, rec.count)
	require.Zero(t, rec.pauses)
}

// A scheduling point, and whatever else falls between two turns, is in the
// samples: together they are the time from the first turn to the last.
func TestNothingHidesBetweenTurns(t *testing.T) {
	rec := newRecorder(1, newMeter(false, nil, params{Iterations: 1}), 1<<20)
	first := rec.begin()
	now := first
	var err error
	for now-first < 3*restTime {
		now, err = rec.turn(context.Background(), now)
		require.NoError(t, err)
		if len(rec.samples) == cap(rec.samples)/2 {
			break
		}
	}
	rec.flush()
	require.Zero(t, rec.pauses)
	require.InDelta(t, float64(now-first), rec.sum, float64(rec.count), "less than 1 ns each, which counts as 1")
}
