package main

import (
	"context"

	"github.com/goverbs/goverbs/ci/measure"
)

func init() {
	suites["verbs"] = verbsSuite
	suites["verbs-native"] = nativeSuite
}

// verbsSuite compares rdmabench with perftest, and Go with C on one queue pair.
func verbsSuite(e env) []benchmark {
	instructions := []string{"instructions"}
	both := []string{"instructions", "wall"}
	shim := ""
	if e.clock == "instructions" {
		shim = e.shim
	}
	// The shim gives up the CPU for both programs.
	quiet := func(args []string) []string {
		if shim == "" {
			return args
		}
		return append(args, "-yield=false")
	}
	lat := func(name, program, test, shim string, limit float64, args ...string) benchmark {
		return benchmark{name: name, unit: "us", baseline: program, target: measure.AtMost(limit), clocks: instructions,
			ours: ours(e, p50, shim, quiet(append([]string{test}, args...))),
			base: perftest(program, latTypical, shim, args...)}
	}
	bw := func(name, program, test string, args ...string) benchmark {
		return benchmark{name: name, unit: "MiB/s", baseline: program, target: measure.AtLeast(0.97), clocks: both,
			ours: ours(e, mibps, "", append([]string{test}, args...)),
			base: perftest(program, bwAverage, "", args...)}
	}
	return []benchmark{
		lat("read_lat_64B", "ib_read_lat", "read_lat", "", 1.05, "-s", "64", "-n", "500"),
		writeLatency(e),
		lat("send_rc_lat_64B", "ib_send_lat", "send_lat", shim, 1.05, "-s", "64", "-n", "500"),
		lat("send_ud_lat_64B", "ib_send_lat", "send_lat", shim, 1.05, "-c", "UD", "-s", "64", "-n", "500"),
		lat("fetch_add_lat", "ib_atomic_lat", "atomic_lat", "", 1.05, "-A", "FETCH_AND_ADD", "-n", "500"),
		lat("send_rc_lat_64B_event", "ib_send_lat", "send_lat", "", 1.25, "-e", "-s", "64", "-n", "500"),
		defaultRuntime(e),
		bw("read_bw_64KiB", "ib_read_bw", "read_bw", "-s", "65536", "-n", "200", "-o", "16", "-Q", "100"),
		bw("write_bw_64KiB", "ib_write_bw", "write_bw", "-s", "65536", "-n", "200", "-Q", "100"),
		bw("send_ud_rate_1KiB", "ib_send_bw", "send_bw", "-c", "UD", "-s", "1024", "-n", "2000", "-Q", "100"),
		readAgainstC(),
		connSetup(),
		maskedCAS(),
		streamBandwidth(),
	}
}

// writeLatency is the average time from posting a WRITE to its completion, one
// at a time. ib_write_lat cannot be had on the instruction clock: its two sides
// look at memory without ever giving up their only CPU. ib_write_bw with one
// outstanding request does the same work with a passive server.
func writeLatency(e env) benchmark {
	avg := func(r rdmabenchResult) float64 { return r.Latency.Avg }
	rate := perftest("ib_write_bw", bwRate, "", "-s", "64", "-n", "3000", "-t", "1")
	return benchmark{name: "write_lat_64B", unit: "us", baseline: "ib_write_bw -t 1", target: measure.AtMost(1.05),
		clocks: []string{"instructions"},
		ours:   ours(e, avg, "", []string{"write_lat", "-passive", "-warmup", "500", "-s", "64", "-n", "3000"}),
		base: func(ctx context.Context) (float64, error) {
			mpps, err := rate(ctx)
			return 1 / mpps, err
		}}
}

// defaultRuntime is send_rc_lat_64B_event without what rdmabench does to the Go
// runtime's monitor thread on one CPU.
func defaultRuntime(e env) benchmark {
	args := []string{"-e", "-s", "64", "-n", "500"}
	return benchmark{name: "send_rc_lat_64B_event_default", unit: "us", baseline: "ib_send_lat",
		clocks: []string{"instructions"}, only: true,
		ours: ours(e, p50, "", append([]string{"send_lat"}, args...), "GODEBUG=schedtrace=0"),
		base: perftest("ib_send_lat", latTypical, "", args...)}
}
