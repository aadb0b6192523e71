package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/goverbs/goverbs/verbs"
)

var tests = []string{"read_lat", "write_lat", "send_lat", "atomic_lat", "read_bw", "write_bw", "send_bw"}

// Defaults and limits of perftest.
const (
	latSize, bwSize = 2, 65536
	latWarmup       = 100
	maxSize         = 8 << 20
	bwDepth         = 128
	recvDepth       = 512
	moderation      = 100  // -Q up to moderatedSize, and for datagrams and events
	moderatedSize   = 8192 // above it each request is signaled
)

// options are the command line of one side. Only params must be the same on
// both.
type options struct {
	params
	device     string
	port       int // of the device
	gidIndex   int
	server     string // empty: this side is the server
	bind       netip.Addr
	tcpPort    int
	depth      int // outstanding requests in bandwidth tests
	recvs      int // receives that are kept posted
	signal     int // every signal-th request of a bandwidth test is signaled
	list       int // requests posted in one call
	inline     int
	atomic     string
	reads      int
	ackTimeout int
	sizeGiven  bool
	yield      bool
	loop       bool
	json       bool
	histogram  bool
	progress   bool
	margin     time.Duration // of a run for a time, at its begin and its end, that does not count
	cpuProfile string
}

func parse(args []string, usage io.Writer) (*options, error) {
	if len(args) == 0 || !slices.Contains(tests, args[0]) {
		return nil, fmt.Errorf("usage: rdmabench %s [flags] [server]; rdmabench TEST -help lists the flags; rdmabench -version", strings.Join(tests, "|"))
	}
	o := &options{params: params{Version: paramsVersion, Test: args[0]}}
	size, depth, warmup := latSize, 1, latWarmup
	switch {
	case o.bandwidth():
		size, depth, warmup = bwSize, bwDepth, 0
	case o.Test == "atomic_lat":
		size = 8
	}
	fs := flag.NewFlagSet("rdmabench "+o.Test, flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.device, "d", "", "RDMA `device`; default the one that has the TCP connection's local address, or the first")
	fs.IntVar(&o.port, "i", 1, "port of the device")
	fs.IntVar(&o.gidIndex, "x", -1, "GID `index`; default by type and address, RoCE v2 over IPv4 first")
	fs.TextVar(&o.bind, "bind", netip.Addr{}, "local `address` of the TCP connection")
	fs.IntVar(&o.tcpPort, "p", 18515, "TCP port on which the peers exchange addresses")
	fs.StringVar(&o.Transport, "c", "RC", "transport: RC, UC or UD")
	fs.IntVar(&o.Size, "s", size, "message size in bytes")
	fs.BoolVar(&o.Sweep, "a", false, "all sizes from 2 bytes to 8 MiB, or one MTU for UD")
	fs.IntVar(&o.Iterations, "n", 1000, "iterations")
	seconds := fs.Float64("D", 0, "run for so many `seconds` instead of -n")
	margin := fs.Float64("f", -1, "with -D: leave out so many `seconds` at the start and as many at the end; default a quarter of -D")
	fs.IntVar(&o.Warmup, "warmup", warmup, "iterations before those that count; perftest has no such flag")
	fs.BoolVar(&o.Events, "e", false, "wait for completion events instead of polling")
	fs.BoolVar(&o.Passive, "passive", false, "write_lat: from post to completion, like read_lat, instead of a ping-pong")
	fs.IntVar(&o.QPs, "q", 1, "queue pairs of a bandwidth test")
	fs.IntVar(&o.MTU, "m", 0, "path MTU in bytes; default the smaller one of the two sides'")
	fs.IntVar(&o.depth, "t", depth, "requests outstanding in a bandwidth test")
	fs.IntVar(&o.recvs, "r", recvDepth, "receives that are kept posted")
	fs.IntVar(&o.signal, "Q", 0, "signal every `Q`-th request of a bandwidth test; 0 means one of each list, or of 100 small messages, or each above 8192 bytes")
	fs.IntVar(&o.list, "l", 1, "requests posted in one call in a bandwidth test; 0 means as many as there is room for")
	fs.IntVar(&o.inline, "I", 0, "send messages of up to so many `bytes` inline")
	fs.StringVar(&o.atomic, "A", "FETCH_AND_ADD", "atomic: FETCH_AND_ADD or CMP_AND_SWAP")
	fs.IntVar(&o.reads, "o", 0, "outstanding READs and atomics; 0 means what the device can, at most 16")
	fs.IntVar(&o.ackTimeout, "u", 14, "acknowledgement timeout: 4.096 us * 2^`n`")
	fs.BoolVar(&o.yield, "yield", scarce(runtime.NumCPU()), "give up the CPU between polls that found nothing; the default on one CPU. With -e there are none")
	fs.BoolVar(&o.loop, "loop", false, "server: serve one client after the other")
	fs.BoolVar(&o.json, "json", false, "print one JSON object; with -a one for each size")
	fs.BoolVar(&o.histogram, "histogram", false, "print the whole distribution of latencies")
	fs.BoolVar(&o.progress, "progress", false, "show progress on standard error even if that is no terminal")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this `file`")
	if err := fs.Parse(args[1:]); err != nil {
		return nil, err
	}
	if fs.NArg() > 1 {
		return nil, fmt.Errorf("unexpected arguments %q: flags go before the server's address", fs.Args()[1:])
	}
	o.server = fs.Arg(0)
	if math.IsNaN(*seconds) || *seconds < 0 || *seconds > 1e6 {
		return nil, fmt.Errorf("-D %v is out of range", *seconds)
	}
	if o.Duration = time.Duration(*seconds * float64(time.Second)); o.Duration > 0 {
		o.Iterations = 0
		if *margin < 0 {
			*margin = *seconds / 4
		}
		o.margin = time.Duration(*margin * float64(time.Second))
	} else if *margin >= 0 {
		return nil, errors.New("-f leaves out a part of -D")
	}
	if o.Duration > 0 && (math.IsNaN(*margin) || o.margin >= o.Duration/2) {
		return nil, fmt.Errorf("-f %v leaves nothing of -D %v to measure", *margin, *seconds)
	}
	o.yield = o.yield && !o.Events
	fs.Visit(func(f *flag.Flag) { o.sizeGiven = o.sizeGiven || f.Name == "s" })
	o.progress = o.progress || term.IsTerminal(int(os.Stderr.Fd()))
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *options) check() error {
	verb := strings.SplitN(o.Test, "_", 2)[0]
	switch {
	case o.Transport != "RC" && o.Transport != "UC" && o.Transport != "UD":
		return fmt.Errorf("-c %s: there are RC, UC and UD", o.Transport)
	case o.Transport != "RC" && (verb == "read" || verb == "atomic"):
		return fmt.Errorf("%s needs -c RC", o.Test)
	case o.Transport == "UD" && verb == "write":
		return fmt.Errorf("%s needs -c RC or UC", o.Test)
	case o.atomic != "FETCH_AND_ADD" && o.atomic != "CMP_AND_SWAP":
		return fmt.Errorf("-A %s: there are FETCH_AND_ADD and CMP_AND_SWAP", o.atomic)
	case verb == "atomic" && (o.Size != 8 || o.Sweep):
		return errors.New("atomics have 8 bytes: no -s and no -a")
	case o.Sweep && o.sizeGiven:
		return errors.New("-a measures all sizes: no -s")
	case o.Passive && o.Test != "write_lat":
		return errors.New("-passive is for write_lat")
	case o.Test == "write_lat" && o.Events && !o.Passive:
		return errors.New("write_lat watches memory: no -e without -passive")
	case !o.bandwidth() && o.QPs != 1:
		return errors.New("a latency test has one queue pair: no -q")
	case o.bandwidth() && o.histogram:
		return errors.New("a bandwidth test has no -histogram")
	case o.MTU != 0 && mtuOf(o.MTU) == 0:
		return fmt.Errorf("-m %d: there are 256, 512, 1024, 2048 and 4096", o.MTU)
	}
	for _, r := range []struct {
		flag          string
		v, least, top int
	}{
		{"i", o.port, 1, 255}, {"x", o.gidIndex, -1, 255}, {"p", o.tcpPort, 0, 65535}, {"s", o.Size, 1, 1 << 30},
		{"warmup", o.Warmup, 0, math.MaxInt32}, {"q", o.QPs, 1, 1024}, {"t", o.depth, 1, 1 << 15}, {"r", o.recvs, 1, 1 << 15},
		{"Q", o.signal, 0, o.depth}, {"l", o.list, 0, 1 << 15}, {"I", o.inline, 0, 1 << 16}, {"o", o.reads, 0, 255},
		{"u", o.ackTimeout, 1, 31},
	} {
		if r.v < r.least || r.v > r.top {
			return fmt.Errorf("-%s %d is out of range: %d to %d", r.flag, r.v, r.least, r.top)
		}
	}
	if o.Duration == 0 && (o.Iterations < 1 || o.Iterations > math.MaxInt32) {
		return fmt.Errorf("-n %d is out of range: 1 to %d", o.Iterations, math.MaxInt32)
	}
	return nil
}

// scarce reports whether polling takes the CPU that the work itself needs.
func scarce(cpus int) bool { return cpus == 1 }

// signalEvery is -Q, or perftest's rule: large messages are signaled each.
func (o *options) signalEvery(size int) int {
	switch {
	case o.signal > 0:
		return o.signal
	case o.list > 1:
		return min(o.list, o.depth)
	case size > moderatedSize && o.Transport != "UD" && !o.Events:
		return 1
	}
	return min(moderation, o.depth)
}

// sizes lists the sizes to measure; a datagram has at most mtu bytes.
func (o *options) sizes(mtu int) []int {
	limit := maxSize
	if o.Transport == "UD" {
		limit = mtu
	}
	if !o.Sweep {
		if o.Transport == "UD" && !o.sizeGiven {
			return []int{min(o.Size, mtu)}
		}
		return []int{o.Size}
	}
	var out []int
	for s := 2; s <= limit; s *= 2 {
		out = append(out, s)
	}
	return out
}

// mtuOf returns the code of an MTU in bytes, or 0.
func mtuOf(bytes int) verbs.MTU {
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}
