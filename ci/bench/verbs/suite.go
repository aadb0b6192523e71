// Package verbs is the suite of package verbs: rdmabench beside perftest with the
// same flags, Go beside C on one queue pair, connections and streams.
package verbs

import (
	"context"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Suite compares rdmabench with perftest, and Go with C on one queue pair.
func Suite(e harness.Env) []harness.Benchmark {
	list := append(latencies(e), bandwidths(e)...)
	return append(list, readAgainstC(), readSync(), connSetup(), maskedCAS(), streamBandwidth())
}

// programs runs rdmabench and perftest with the same arguments.
type programs struct {
	harness.Env
	// Two programs that poll, on one CPU, give it up after each poll: both are
	// preloaded with what does that, and rdmabench does not do it itself.
	yield bool
}

func (p programs) ours(pick func(result) float64, test string, args []string, env ...string) harness.Pass {
	if p.Clock == harness.Instructions {
		args = append([]string{"-yield=false"}, args...)
	}
	return rdmabench(p.Rdmabench, pick, append([]string{test}, args...), append(env, p.preload()...)...)
}

func (p programs) perftest(program string, column int, args []string) harness.Side {
	return harness.Side{Name: program, Run: rig.Perftest(program, column, args, p.preload()...)}
}

func (p programs) preload() []string {
	if !p.yield || p.Clock != harness.Instructions || p.Shim == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + p.Shim}
}

var instructions = []string{harness.Instructions}

func latencies(e harness.Env) []harness.Benchmark {
	lat := func(name, program, test string, yield bool, limit float64, args ...string) harness.Benchmark {
		p := programs{e, yield}
		f := harness.Figure{Name: name, Unit: "us", Target: measure.AtMost(limit)}
		return harness.Compare(f, instructions, p.ours(p50, test, args), p.perftest(program, rig.LatTypical, args))
	}
	read := lat("read_lat_64B", "ib_read_lat", "read_lat", false, 1.05, "-s", "64", "-n", "500")
	read.Also = []string{harness.Wall} // one row shows what that clock is worth
	return []harness.Benchmark{
		read,
		writeLatency(e),
		lat("send_rc_lat_64B", "ib_send_lat", "send_lat", true, 1.05, "-s", "64", "-n", "500"),
		lat("send_ud_lat_64B", "ib_send_lat", "send_lat", true, 1.05, "-c", "UD", "-s", "64", "-n", "500"),
		lat("fetch_add_lat", "ib_atomic_lat", "atomic_lat", false, 1.05, "-A", "FETCH_AND_ADD", "-n", "500"),
		lat("send_rc_lat_64B_event", "ib_send_lat", "send_lat", false, 1.25, "-e", "-s", "64", "-n", "500"),
	}
}

// writeLatency is the average time from posting a WRITE to its completion, one
// at a time. ib_write_lat cannot be had on the instruction clock: its two sides
// look at memory without ever giving up their only CPU. ib_write_bw with one
// outstanding request does the same work with a passive server.
func writeLatency(e harness.Env) harness.Benchmark {
	avg := func(r result) float64 { return r.Latency.Avg }
	p := programs{Env: e}
	rate := rig.Perftest("ib_write_bw", rig.BWRate, []string{"-s", "64", "-n", "3000", "-t", "1"})
	base := harness.Side{Name: "ib_write_bw -t 1", Run: func(ctx context.Context) ([]float64, error) {
		mpps, err := rate(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{1 / mpps[0]}, nil
	}}
	f := harness.Figure{Name: "write_lat_64B", Unit: "us", Target: measure.AtMost(1.05)}
	return harness.Compare(f, instructions, p.ours(avg, "write_lat", []string{"-passive", "-warmup", "500", "-s", "64", "-n", "3000"}), base)
}

// bandwidths have a row for each way of posting and waiting that perftest has,
// with the same flags on both sides: requests posted one by one or in lists of as
// many as are signaled once, completions polled for or announced by events.
// ib_write_bw refuses -e.
func bandwidths(e harness.Env) []harness.Benchmark {
	const group = "32" // requests of a list, and for each signaled one
	var list []harness.Benchmark
	row := func(name, program, test string, events, lists bool, args ...string) {
		args = append(args, "-Q", group)
		if events {
			name, args = name+"_event", append(args, "-e")
		} else {
			name += "_poll"
		}
		if lists {
			name, args = name+"_list", append(args, "-l", group)
		} else {
			name += "_single"
		}
		// The server of a SEND test polls too.
		p := programs{e, test == "send_bw" && !events}
		f := harness.Figure{Name: name, Unit: "MiB/s", Target: measure.AtLeast(0.97)}
		list = append(list, harness.Compare(f, harness.Both, p.ours(mibps, test, args), p.perftest(program, rig.BWAverage, args)))
	}
	for _, events := range []bool{false, true} {
		for _, lists := range []bool{false, true} {
			if !events {
				row("write_bw_64KiB", "ib_write_bw", "write_bw", events, lists, "-s", "65536", "-n", "128", "-t", "128")
			}
			row("send_ud_rate_1KiB", "ib_send_bw", "send_bw", events, lists, "-c", "UD", "-s", "1024", "-n", "1024", "-t", "128", "-r", "512")
		}
		row("read_bw_64KiB", "ib_read_bw", "read_bw", events, false, "-s", "65536", "-n", "128", "-t", "128", "-o", "16")
	}
	return list
}
