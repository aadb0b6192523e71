package main

import (
	"context"
	"flag"
	"fmt"
	"io"
)

// report is doctor's result: the findings, and the facts behind them.
type report struct {
	Findings []finding `json:"findings"`
	Facts    facts     `json:"facts"`
}

func doctor(ctx context.Context, args []string) (result, error) {
	var run, addresses bool
	rest, err := flags(args, 0, 2, func(fs *flag.FlagSet) {
		fs.BoolVar(&run, "run", false, "")
		fs.BoolVar(&addresses, "addresses", false, "")
	})
	switch {
	case err != nil:
		return nil, err
	case run:
		return doctorRun(ctx, rest, addresses)
	case addresses, len(rest) > 0:
		return nil, usageError("-addresses, and the name of a device, go with -run")
	}
	f, err := gather(ctx)
	if err != nil {
		return nil, err
	}
	r := report{diagnose(f), f}
	if r.count(problem) > 0 {
		return r, errProblem
	}
	return r, nil
}

func (r report) count(level string) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

func (r report) text(w io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%s: %s: %s\n    remedy: %s\n", f.Level, f.Object, f.Text, f.Remedy); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "devices: %d, problems: %d, advice: %d\n", len(r.Facts.Devices), r.count(problem), r.count(advice))
	return err
}
