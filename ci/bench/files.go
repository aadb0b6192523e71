package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/bench/report"
	"github.com/goverbs/goverbs/ci/bench/srd"
)

// mergeFiles joins the files of one suite, prints the table, and writes passes in
// benchstat's format, the table as Markdown and as comma-separated values, and a plot beside
// the JSON file. A part that is missing is reported at the end.
func mergeFiles(out string, files []string) error {
	all, err := readRecords(files)
	if werr := measure.WriteJSON(out, all); werr != nil {
		return werr
	}
	measure.WriteTable(os.Stdout, all)
	base := strings.TrimSuffix(out, ".json")
	for suffix, write := range map[string]func(io.Writer, []measure.Record){".txt": measure.WriteGoBench, ".md": measure.WriteMarkdown, ".csv": measure.WriteCSV} {
		var b bytes.Buffer
		write(&b, all)
		err = errors.Join(err, os.WriteFile(base+suffix, b.Bytes(), 0o644))
	}
	return errors.Join(err, measure.Plot(base+".svg", all), srd.PlotTails(base, all))
}

// readRecords reads what can be read.
func readRecords(files []string) (all []measure.Record, err error) {
	for _, f := range files {
		var part []measure.Record
		b, rerr := os.ReadFile(f)
		if rerr == nil {
			rerr = json.Unmarshal(b, &part)
		}
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f, rerr))
			continue
		}
		all = append(all, part...)
	}
	return all, err
}

// planPairs takes the baselines of a run, each against itself, as the pilot of the
// next one.
func planPairs(halfWidth float64, files []string) error {
	const most = 200
	all, err := readRecords(files)
	for _, r := range all {
		if len(r.BaseAgain) == 0 {
			continue
		}
		n := measure.Pairs(measure.Ratios(r.BaseAgain, r.BaseFirst), halfWidth, most)
		text := fmt.Sprint(n)
		if n > most {
			text = fmt.Sprint("more than ", most)
		}
		fmt.Printf("%-40s %-6s %-12s %s\n", r.Name, measure.Series(r.Kernel), r.Clock, text)
	}
	return err
}

// writeReport writes the page of all results, from the root of the repository.
func writeReport(out string) error {
	e, err := environment()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := report.Write(&b, filepath.Dir(out), "docs/benchmarks", e); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, b.Bytes(), 0o644)
}

// environment describes this machine.
func environment() (report.Environment, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return report.Environment{}, err
	}
	// line returns what a pattern finds in a file of the system.
	line := func(path, pattern string) string {
		b, _ := os.ReadFile(path)
		if m := regexp.MustCompile(pattern).FindSubmatch(b); m != nil {
			return string(m[1])
		}
		return "unknown"
	}
	build := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				build = "revision " + s.Value + ", " + build
			}
		}
	}
	return report.Environment{
		Time:      time.Now(),
		System:    line("/etc/os-release", `PRETTY_NAME="(.*)"`),
		Kernel:    unix.ByteSliceToString(uts.Release[:]),
		Processor: fmt.Sprintf("%s, %d CPUs", line("/proc/cpuinfo", `model name\s*: (.*)`), runtime.NumCPU()),
		Build:     build,
	}, nil
}
