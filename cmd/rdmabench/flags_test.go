package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func parsed(t *testing.T, args string) *options {
	t.Helper()
	o, err := parse(strings.Fields(args), io.Discard)
	require.NoError(t, err, args)
	return o
}

func TestParse(t *testing.T) {
	o := parsed(t, "read_lat -d rxe0 -i 2 -s 64 -n 500 -e -m 1024 -u 18 -bind 10.77.0.1 -json 10.77.0.2")
	require.Equal(t, "10.77.0.2", o.server)
	require.Equal(t, "rxe0", o.device)
	require.Equal(t, "10.77.0.1", o.bind.String())
	require.Equal(t, []int{2, 18, 18515, -1}, []int{o.port, o.ackTimeout, o.tcpPort, o.gidIndex})
	require.True(t, o.json && o.sizeGiven)
	require.Equal(t, params{Version: paramsVersion, Test: "read_lat", Transport: "RC", Size: 64, Iterations: 500, Warmup: latWarmup,
		QPs: 1, Events: true, MTU: 1024}, o.params)

	o = parsed(t, "write_bw -D 2.5")
	require.Equal(t, []int{65536, 128, 0, 0}, []int{o.Size, o.depth, o.Iterations, o.Warmup})
	require.Equal(t, 2500*time.Millisecond, o.Duration)
	require.Equal(t, 625*time.Millisecond, o.margin, "as perftest: a quarter")
	require.Equal(t, time.Second, parsed(t, "write_bw -D 2.5 -f 1").margin)
	require.Zero(t, parsed(t, "write_bw -D 2.5 -f 0").margin)
	require.Equal(t, 1, o.list, "as perftest: each post is one request")
	require.Equal(t, 8, parsed(t, "atomic_lat").Size)
	require.Equal(t, 2, parsed(t, "send_lat").Size)
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "usage",
		"ping":                             "usage",
		"read_lat -c UD":                   "needs -c RC",
		"atomic_lat -c UC":                 "needs -c RC",
		"write_bw -c UD":                   "needs -c RC or UC",
		"send_lat -c XY":                   "RC, UC and UD",
		"atomic_lat -s 4":                  "8 bytes",
		"atomic_lat -a":                    "8 bytes",
		"atomic_lat -A ADD":                "FETCH_AND_ADD and CMP_AND_SWAP",
		"read_bw -a -s 64":                 "no -s",
		"write_lat -e":                     "no -e",
		"read_lat -passive":                "-passive",
		"read_lat -q 2":                    "one queue pair",
		"read_bw -D 4 -f 2":                "leaves nothing",
		"read_bw -D 4 -f NaN":              "leaves nothing",
		"read_bw -f 1":                     "a part of -D",
		"read_bw -histogram":               "no -histogram",
		"read_lat -m 1500":                 "-m 1500",
		"read_lat -n 0":                    "-n 0 is out of range",
		"read_lat -D -1":                   "-D -1",
		"read_lat -D NaN":                  "-D NaN",
		"read_lat -u 32":                   "-u 32 is out of range",
		"read_bw -t 100000":                "-t 100000 is out of range",
		"read_bw -t 16 -Q 17":              "-Q 17 is out of range: 0 to 16",
		"read_lat -bind nowhere":           "-bind",
		"read_lat -unknown":                "-unknown",
		"read_lat 10.0.0.1 -s 64":          "flags go before",
		"send_bw -x 256":                   "-x 256",
		"write_lat -s 2000000000":          "-s 2000000000",
		"send_lat -warmup -1 -q 1 -l 1 -n": "flag needs an argument",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		require.ErrorContains(t, err, want, args)
	}
}

// As perftest: one completion for 100 small messages, one for each large one.
func TestModeration(t *testing.T) {
	for args, want := range map[string]int{
		"read_bw": 1, "read_bw -s 8192": 100, "read_bw -e": 100, "send_bw -c UD": 100, "read_bw -Q 7": 7, "send_bw -l 16": 16, "send_bw -l 16 -Q 4": 4,
		"send_bw -s 64 -l 500": 128, "write_bw -t 16 -s 64": 16,
	} {
		o := parsed(t, args)
		require.Equal(t, want, o.signalEvery(o.Size), args)
	}
}

func TestScarceCPUs(t *testing.T) {
	require.Equal(t, []bool{true, false, false}, []bool{scarce(1), scarce(2), scarce(4)})
	require.False(t, parsed(t, "read_lat -e -yield").yield, "events are waited for, not polled for")
	require.True(t, parsed(t, "read_bw -yield").yield)
	require.False(t, parsed(t, "read_bw -yield").Events, "to poll is to poll")
}

func TestSizes(t *testing.T) {
	all := parsed(t, "read_bw -a").sizes(1024)
	require.Equal(t, []int{2, 4, 8 << 20}, []int{all[0], all[1], all[len(all)-1]})
	ud := parsed(t, "send_lat -c UD -a").sizes(1024)
	require.Equal(t, 1024, ud[len(ud)-1])
	require.Equal(t, []int{1024}, parsed(t, "send_bw -c UD").sizes(1024), "the default shrinks to the MTU")
	require.Equal(t, []int{2000}, parsed(t, "send_bw -c UD -s 2000").sizes(1024), "what was asked for does not")
}
