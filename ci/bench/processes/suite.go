// Package processes is the part of the suite native between processes, over the simulated devices
// of a fabric (docs/simhca.md): this module's programs beside the programs of others on the
// same devices, and beside memcached.
package processes

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/goverbs/goverbs/ci/bench/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/srd"
	"github.com/goverbs/goverbs/ci/bench/verbs"
)

// Suite has a row for each program of others that is installed. SIMHCA must name a fabric, and
// LD_PRELOAD simhca.so.
func Suite(e harness.Env) []harness.Benchmark {
	return slices.Concat(
		having(os.Stderr, "ib_read_lat", verbs.Processes(e)...),
		having(os.Stderr, "memcached", cache.Processes()),
		having(os.Stderr, "ucx_perftest", srd.BesideUCX()),
		having(os.Stderr, "fi_pingpong", srd.BesideRXD()),
	)
}

// having returns the benchmarks, or none if a program is missing that they need.
func having(w io.Writer, program string, list ...harness.Benchmark) []harness.Benchmark {
	if _, err := exec.LookPath(program); err != nil {
		for _, b := range list {
			fmt.Fprintf(w, "bench: %s is left out: %v\n", b.Name, err)
		}
		return nil
	}
	return list
}
