package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	o, err := parse(strings.Fields("read_lat -d rxe0 -s 64 -n 500 -e -json 10.77.0.2"))
	require.NoError(t, err)
	require.Equal(t, "10.77.0.2", o.server)
	require.Equal(t, "rxe0", o.device)
	require.True(t, o.Events && o.json)
	require.Equal(t, params{Version: 1, Test: "read_lat", Transport: "RC", Size: 64, Iterations: 500, Warmup: 100, QPs: 1,
		Depth: 1, Events: true, Atomic: "FETCH_AND_ADD"}, o.params)

	o, err = parse(strings.Fields("write_bw"))
	require.NoError(t, err)
	require.Equal(t, 65536, o.Size)
	require.Equal(t, 128, o.Depth)
	require.Equal(t, 32, o.signal)

	for args, want := range map[string]string{
		"":                             "usage",
		"ping":                         "usage",
		"read_lat -c UD":               "needs RC",
		"write_bw -c UD":               "needs RC or UC",
		"send_lat -c XY":               "RC, UC or UD",
		"atomic_lat -s 4":              "8 bytes",
		"atomic_lat -A ADD":            "FETCH_AND_ADD or CMP_AND_SWAP",
		"read_lat -q 2":                "one queue pair",
		"read_lat -n 0":                "out of range",
		"read_bw -t 100000":            "out of range",
		"read_lat 10.0.0.1 -s 64 more": "flags go before",
	} {
		_, err := parse(strings.Fields(args))
		require.ErrorContains(t, err, want, args)
	}
}

func TestPeersMustAgree(t *testing.T) {
	a, err := parse([]string{"read_lat", "-s", "64"})
	require.NoError(t, err)
	require.NoError(t, a.agree(a.encode()))
	b := a.params
	b.Size = 128
	require.ErrorContains(t, a.agree(b.encode()), `"size":128`)
	require.ErrorContains(t, a.agree([]byte("\x00rubbish")), "no rdmabench")
}

func TestReport(t *testing.T) {
	p := params{Test: "read_lat", Transport: "RC", Size: 64, Iterations: 100, QPs: 1, Depth: 1}
	r := newResult(p, "rxe0")
	for i := range 1000 {
		r.add(time.Duration(i+1) * time.Microsecond)
	}
	var out bytes.Buffer
	require.NoError(t, r.print(&out, true, false, true))
	var rep report
	require.NoError(t, json.Unmarshal(out.Bytes(), &rep))
	require.Equal(t, 1000, rep.Iterations)
	require.InDelta(t, 500, rep.Latency.P50, 1)
	require.InDelta(t, 990, rep.Latency.P99, 1)
	require.InDelta(t, 500.5, rep.Latency.Avg, 1)
	out.Reset()
	require.NoError(t, r.print(&out, false, true, true))
	require.Contains(t, out.String(), "p99.9[us]")
	require.Contains(t, out.String(), "Percentile")

	r = newResult(params{Test: "write_bw", Size: 1 << 20}, "rxe0")
	r.rate(100, 1<<20, 2*time.Second, 10*time.Millisecond)
	rep = r.report()
	require.InDelta(t, 50, rep.MiBps, 1e-9)
	require.InDelta(t, 100, rep.PeakMiBps, 1e-9)
	require.InDelta(t, 52.4288, rep.MBps, 1e-9)
	require.InDelta(t, 50, rep.MsgRate, 1e-9)
	require.Nil(t, rep.Latency)
}

func TestSweep(t *testing.T) {
	require.Equal(t, 4096, sweep("send_lat", "UD")[11])
	require.Equal(t, 8<<20, sweep("read_bw", "RC")[22])
}
