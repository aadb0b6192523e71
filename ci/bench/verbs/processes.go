package verbs

import (
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Processes compares rdmabench with perftest on devices that are fast enough for the wall clock.
func Processes(e harness.Env) []harness.Benchmark {
	p := programs{Env: e}
	row := func(name, program, test, unit string, column int, pick func(result) float64, target *measure.Target, args ...string) harness.Benchmark {
		f := harness.Figure{Name: "processes_" + name, Unit: unit, Target: target}
		return harness.Compare(f, []string{harness.Wall}, p.ours(pick, test, args), p.perftest(program, column, args))
	}
	latency := func(name, test string, args ...string) harness.Benchmark {
		return row(name, "ib_"+test, test, "us", rig.LatTypical, p50, measure.AtMost(1.15), append(args, "-n", "20000")...)
	}
	bandwidth := func(name, test string, args ...string) harness.Benchmark {
		return row(name, "ib_"+test, test, "MiB/s", rig.BWAverage, mibps, measure.AtLeast(0.97), args...)
	}
	return []harness.Benchmark{
		latency("read_lat_64B", "read_lat", "-s", "64"),
		latency("write_lat_64B", "write_lat", "-s", "64"),
		latency("send_lat_64B", "send_lat", "-s", "64"),
		latency("atomic_lat", "atomic_lat"),
		bandwidth("write_bw_64KiB", "write_bw", "-s", "65536", "-n", "5000"),
		bandwidth("send_ud_rate", "send_bw", "-c", "UD", "-s", "1024", "-D", "1", "-f", "0"), // by a number, perftest waits for what is lost
	}
}
