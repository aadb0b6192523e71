// Command rdmabench measures latency and bandwidth of RDMA operations between two hosts.
// It uses package verbs and follows the rules of perftest, so that the figures of the two
// can be compared.
//
// The server is started first and names only the test:
//
//	server$ rdmabench read_lat
//	rdmabench: waiting for a client at [::]:18515
//
// The client gives the same flags and the server's address, and prints the result:
//
//	client$ rdmabench read_lat -s 64 -n 10000 10.77.0.2
//	# polling, lists of 1, depth 1, signaled every 1, MTU 4096, rxe0 GID 1 ::ffff:10.77.0.1, Linux 6.1.0-50-amd64, 2 CPUs
//	     bytes  iterations   min[us]   p50[us]   avg[us]   p90[us]   p99[us] p99.9[us]   max[us] stdev[us]
//	        64       10000     ...
//
// The server takes size, iterations and the like from its own flags, and both sides check
// that they agree. rdmabench -version prints what it was built from.
//
// # Tests
//
// read_lat and atomic_lat post one request, wait for its completion, and measure the time
// from one post to the next; the server's CPU takes no part. write_lat -passive does the
// same with a WRITE.
//
// write_lat and send_lat are ping-pongs and report half of the round trip. In write_lat
// each side watches the last byte of its buffer in memory; in send_lat it waits for a
// receive. A side collects the completions of its own requests when they are there, and
// does not wait for each.
//
// read_bw, write_bw and send_bw keep -t requests outstanding on each of -q queue pairs.
// Every -Q-th request asks for a completion. Requests are posted in lists of -l, by
// default one by one. The peak is perftest's: the fastest run of consecutive messages,
// from the post of its first to the completion of its last; it needs -n, not -D.
//
// # What a figure means
//
// Flags that perftest has mean what they mean there, and so do the defaults. rdmabench
// polls for completions, on any number of CPUs. With -e it waits for events of the
// completion channel, after one look at the queue. With -D a quarter of the time at the
// start and a quarter at the end do not count, or what -f says.
//
// The heading of the table, and -json, say what was really used: events or polling,
// lists, signaling, depth, MTU, GID, kernel, CPUs. Do not compare two figures for which
// these differ.
//
// Latencies are taken from one turn to the next without a gap, so scheduling points of
// the Go runtime fall into the samples, as in every Go program. Every million samples,
// and with -progress every two seconds, there is a pause. The JSON counts them in
// "pauses" and "paused" (microseconds in all); p99.9 and max do not include what happens
// in a pause.
//
// # Polling on one CPU
//
// A program that polls on the only CPU keeps that CPU from the peer, if it is on the same
// host, and from the threads in which a software device works. On one CPU rdmabench
// therefore gives up the CPU (sched_yield) between two polls that find nothing. perftest
// does not, and so in a ping-pong on one CPU it measures the scheduler's time slices.
// -yield=false is perftest's way, and the default with more CPUs.
//
// On one CPU the program starts itself again once, with a timer slack of 10 ms
// (PR_SET_TIMERSLACK), and gives the Go runtime one P if it polls: see calmRuntime.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"

	"github.com/goverbs/goverbs/cmd/internal/version"
)

func main() {
	if version.Asked(os.Args[1:]) {
		fmt.Println(version.Of("rdmabench"))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = calmRuntime(o.Events)
	}
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "rdmabench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	if o.cpuProfile != "" {
		stop, err := profile(o.cpuProfile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	b := &bench{o: o, out: stdout, log: stderr}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.server != "" {
		return b.client(ctx)
	}
	return b.server(ctx)
}

func profile(path string) (stop func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
