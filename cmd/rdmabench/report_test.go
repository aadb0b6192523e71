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
)

func TestLatencyReport(t *testing.T) {
	o := parsed(t, "send_lat -s 64")
	rec := newRecorder(2, newMeter(false, nil, o.params))
	rec.begin()
	for i := range 1000 {
		if rec.add(rec.paused, int64(2*(i+1))*1000) { // half of it counts
			_, err := rec.pause(context.Background())
			require.NoError(t, err)
		}
	}
	rec.flush()
	r := newResult(o, o.params, "rxe0")
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
	require.LessOrEqual(t, lat["p99.9"], lat["max"])
	delete(rep, "lat_us")
	require.NotEmpty(t, rep["distribution"])
	delete(rep, "distribution")
	require.Equal(t, map[string]any{"test": "send_lat", "transport": "RC", "size": 64.0, "iterations": 1000.0, "events": false,
		"device": "rxe0", "qps": 1.0, "tx_depth": 1.0}, rep)

	out.Reset()
	o.json, o.histogram = false, false
	require.NoError(t, r.print(&out, o, true))
	require.Equal(t, `     bytes  iterations   min[us]   p50[us]   avg[us]   p90[us]   p99[us] p99.9[us]   max[us]
        64        1000      1.00    500.01    500.50    900.03    990.01    999.01   1000.00
`, out.String())
	out.Reset()
	o.histogram = true
	require.NoError(t, r.print(&out, o, false))
	require.NotContains(t, out.String(), "bytes")
	require.Contains(t, out.String(), "Percentile")
}

func TestRateReport(t *testing.T) {
	o := parsed(t, "send_bw -s 1048576 -c UC")
	b := &sender{messages: 100, begun: 5, end: 5 + int64(2*time.Second), trace: newTrace(100)}
	b.trace.post(100, b.begun)
	b.trace.complete(50, b.begun+int64(500*time.Millisecond))
	b.trace.complete(50, b.end)
	r := newResult(o, o.params, "rxe0")
	r.rate(b)
	received := uint64(99)
	r.received = &received
	var out bytes.Buffer
	require.NoError(t, r.print(&out, o, true))
	require.Equal(t, `     bytes  iterations   BW peak[MiB/s]   BW average[MiB/s]  MsgRate[Mpps]
   1048576         100           100.00               50.00       0.000050
# the server received 99 of them
`, out.String())
	out.Reset()
	o.json = true
	require.NoError(t, r.print(&out, o, true))
	require.JSONEq(t, `{"test":"send_bw","transport":"UC","size":1048576,"iterations":100,"events":false,"device":"rxe0","qps":1,
		"tx_depth":128,"bw_MBps":52.4288,"bw_MiBps":50,"bw_peak_MiBps":100,"msg_rate":50,"received":99}`, out.String())
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
	rec := newRecorder(1, newMeter(false, nil, params{Iterations: 1}))
	ctx := context.Background()
	now := rec.begin()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for range 1000 {
			if rec.add(now, 12345) {
				now, _ = rec.pause(ctx)
			}
		}
	}))
	require.Positive(t, rec.count)
}
