// Command bench measures this module against its peers, interleaved, in one
// run. It runs inside the lab, or on a machine with RDMA devices, where "make
// bench" starts it:
//
//	bench -suite verbs -clock instructions -o verbs-instructions.json
//	bench -merge -o verbs.json verbs-instructions.json verbs-wall.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/internal/calm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	suite := flag.String("suite", "verbs", "suite to run")
	out := flag.String("o", "", "JSON file to write")
	only := flag.String("only", "", "comma-separated names of the benchmarks to run")
	pairs := flag.Int("pairs", 0, "pairs of each benchmark; 0 means the clock's own number")
	rdmabench := flag.String("rdmabench", "rdmabench", "our benchmark program")
	shim := flag.String("shim", "", "yield.so, for polled ping-pong on the instruction clock")
	role := flag.String("role", "", "run as one side of a pass")
	at := flag.String("at", "", "address of the pass")
	merge := flag.Bool("merge", false, "merge the JSON files named as arguments")
	flag.Parse()
	if *role != "" {
		if roles[*role] == nil {
			return fmt.Errorf("no role %q", *role)
		}
		return roles[*role](ctx, *at)
	}
	calm.SpareProcs()
	if *merge {
		return mergeFiles(*out, flag.Args())
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	e := env{clock: lab.Clock(), topology: lab.Topology(), kernel: unix.ByteSliceToString(uts.Release[:]),
		rdmabench: *rdmabench, shim: *shim}
	if e.topology == "" {
		e.topology = "host"
	}
	table, ok := suites[*suite]
	if !ok {
		return fmt.Errorf("no suite %q", *suite)
	}
	list := slices.DeleteFunc(table(e), func(b benchmark) bool {
		return *only != "" && !slices.Contains(strings.Split(*only, ","), b.name) || b.only && !slices.Contains(b.clocks, e.clock)
	})
	if *pairs == 0 {
		*pairs = defaultPairs[e.clock]
	}
	records, err := measureSuite(ctx, e, list, *pairs, os.Stderr)
	measure.WriteTable(os.Stdout, records)
	if *out != "" {
		if werr := measure.WriteJSON(*out, records); werr != nil {
			return werr
		}
	}
	return err
}

// mergeFiles joins the files of one suite, prints the table, and writes passes
// in benchstat's format and a plot beside the JSON file.
func mergeFiles(out string, files []string) error {
	var all []measure.Record
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		var part []measure.Record
		if err := json.Unmarshal(b, &part); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, part...)
	}
	if err := measure.WriteJSON(out, all); err != nil {
		return err
	}
	measure.WriteTable(os.Stdout, all)
	base := strings.TrimSuffix(out, ".json")
	txt, err := os.Create(base + ".txt")
	if err != nil {
		return err
	}
	measure.WriteGoBench(txt, all)
	if err := txt.Close(); err != nil {
		return err
	}
	return measure.Plot(base+".svg", all)
}
