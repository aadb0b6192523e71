// Command rdmabench measures latency and bandwidth of RDMA operations between
// two hosts, as perftest does, through package verbs.
//
// On the server:
//
//	$ rdmabench read_lat
//
// on the client:
//
//	$ rdmabench read_lat -s 64 -n 10000 10.77.0.2
//	 bytes  iterations   min[us]   p50[us]   avg[us]   p90[us]   p99[us] p99.9[us]   max[us]
//	    64       10000     51.20     55.81     57.02     60.93     84.99    213.25    401.92
//
// Tests: read_lat, write_lat, send_lat, atomic_lat, read_bw, write_bw, send_bw.
// Latency is that of one operation for READ and atomics, and half of a round
// trip for WRITE and SEND. Both sides are given the same flags; the peers check
// that. -json prints one object instead of a table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

func main() {
	if err := calmRuntime(); err != nil {
		fmt.Fprintln(os.Stderr, "rdmabench:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "rdmabench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.cpuProfile != "" {
		f, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	sizes := []int{o.Size}
	if o.sweep {
		sizes = sweep(o.Test, o.Transport)
	}
	ln, err := listen(ctx, o)
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close()
	}
	for {
		for i, size := range sizes {
			p := o.params
			p.Size = size
			if err := once(ctx, o, p, ln, i == 0); err != nil {
				return err
			}
		}
		if !o.loop || o.server == "" && ctx.Err() != nil {
			return ctx.Err()
		}
		if o.server != "" {
			return nil
		}
	}
}

// once runs one test of one size against one peer.
func once(ctx context.Context, o *options, p params, ln listener, first bool) error {
	s, err := open(ctx, o, p, ln)
	if err != nil {
		return err
	}
	defer s.close()
	r, err := s.measure(ctx)
	if err == nil {
		err = s.finish(ctx)
	}
	if err != nil || o.server == "" {
		return err
	}
	return r.print(os.Stdout, o.json, o.histogram, first)
}
