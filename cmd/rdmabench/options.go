package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

var tests = []string{"read_lat", "write_lat", "send_lat", "atomic_lat", "read_bw", "write_bw", "send_bw"}

// params are what both peers must agree on; they travel with the addresses.
type params struct {
	Version    int           `json:"v"`
	Test       string        `json:"test"`
	Transport  string        `json:"transport"` // RC, UC, UD
	Size       int           `json:"size"`      // bytes
	Iterations int           `json:"iterations"`
	Duration   time.Duration `json:"duration"` // instead of Iterations
	Warmup     int           `json:"warmup"`
	QPs        int           `json:"qps"`
	Depth      int           `json:"depth"` // outstanding requests in bandwidth tests
	Events     bool          `json:"events"`
	Atomic     string        `json:"atomic"`
	Passive    bool          `json:"passive"` // write_lat
}

const paramsVersion = 1

// options are the command line of one side.
type options struct {
	params
	device     string
	gidIndex   int
	bind       string
	port       int
	server     string // empty: this side is the server
	mtu        int
	inline     int
	signal     int
	reads      int
	timeoutExp int
	sweep      bool
	loop       bool
	json       bool
	histogram  bool
	progress   bool
	yield      bool
	cpuProfile string
}

func parse(args []string) (*options, error) {
	if len(args) == 0 || !slices.Contains(tests, args[0]) {
		return nil, fmt.Errorf("usage: rdmabench TEST [flags] [server]\ntests: %s\nrdmabench TEST -help lists the flags", strings.Join(tests, " "))
	}
	o := &options{params: params{Version: paramsVersion, Test: args[0]}}
	fs := flag.NewFlagSet("rdmabench "+o.Test, flag.ContinueOnError)
	bw := strings.HasSuffix(o.Test, "_bw")
	size, depth := 2, 1
	switch {
	case bw:
		size, depth = 65536, 128
	case o.Test == "atomic_lat":
		size = 8
	}
	fs.StringVar(&o.device, "d", "", "RDMA device; default the first")
	fs.IntVar(&o.gidIndex, "x", -1, "GID index; default: by type, RoCE v2 over IPv4 first")
	fs.StringVar(&o.bind, "bind", "", "local address of the TCP connection")
	fs.IntVar(&o.port, "p", 18515, "TCP port for the exchange of addresses")
	fs.StringVar(&o.Transport, "c", "RC", "transport: RC, UC or UD")
	fs.IntVar(&o.Size, "s", size, "message size in bytes")
	fs.IntVar(&o.Iterations, "n", 1000, "iterations")
	seconds := fs.Float64("D", 0, "run for so many seconds instead")
	fs.IntVar(&o.Warmup, "warmup", 100, "iterations before measuring, in latency tests")
	fs.IntVar(&o.QPs, "q", 1, "queue pairs, in bandwidth tests")
	fs.IntVar(&o.Depth, "t", depth, "outstanding requests per queue pair, in bandwidth tests")
	fs.IntVar(&o.signal, "Q", 0, "one completion for so many requests; default a quarter of -t")
	fs.BoolVar(&o.Events, "e", false, "wait for completion events instead of polling")
	fs.StringVar(&o.Atomic, "A", "FETCH_AND_ADD", "FETCH_AND_ADD or CMP_AND_SWAP")
	fs.BoolVar(&o.Passive, "passive", false, "write_lat: from posting to completion, with a passive peer, instead of ping-pong")
	fs.IntVar(&o.mtu, "m", 0, "path MTU in bytes; default the port's")
	fs.IntVar(&o.inline, "I", 0, "largest message sent inline, in bytes")
	fs.IntVar(&o.reads, "o", 0, "outstanding READs and atomics; default 16 or what the device can")
	fs.IntVar(&o.timeoutExp, "u", 14, "acknowledgement timeout: 4.096 us * 2^n")
	fs.BoolVar(&o.sweep, "a", false, "all sizes from 2 bytes on")
	fs.BoolVar(&o.loop, "loop", false, "server: serve one client after the other")
	fs.BoolVar(&o.json, "json", false, "print one JSON object")
	fs.BoolVar(&o.histogram, "histogram", false, "print the whole distribution")
	fs.BoolVar(&o.progress, "progress", false, "show progress even if standard error is no terminal")
	fs.BoolVar(&o.yield, "yield", true, "on a machine with one CPU, give it up between polls")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile to this file")
	if err := fs.Parse(args[1:]); err != nil {
		return nil, err
	}
	if fs.NArg() > 1 {
		return nil, fmt.Errorf("unexpected arguments %q: flags go before the server's address", fs.Args()[1:])
	}
	o.server = fs.Arg(0)
	o.Duration = time.Duration(*seconds * float64(time.Second))
	return o, o.check(bw)
}

func (o *options) check(bw bool) error {
	switch {
	case o.Transport != "RC" && o.Transport != "UC" && o.Transport != "UD":
		return fmt.Errorf("-c %s: RC, UC or UD", o.Transport)
	case o.Transport != "RC" && (strings.HasPrefix(o.Test, "read") || strings.HasPrefix(o.Test, "atomic")):
		return fmt.Errorf("%s needs RC", o.Test)
	case o.Transport == "UD" && strings.HasPrefix(o.Test, "write"):
		return fmt.Errorf("%s needs RC or UC", o.Test)
	case o.Atomic != "FETCH_AND_ADD" && o.Atomic != "CMP_AND_SWAP":
		return fmt.Errorf("-A %s: FETCH_AND_ADD or CMP_AND_SWAP", o.Atomic)
	case o.Test == "atomic_lat" && o.Size != 8:
		return fmt.Errorf("atomics have 8 bytes")
	case o.Size < 1 || o.Size > 1<<30, o.Iterations < 1, o.QPs < 1 || o.QPs > 1024, o.Depth < 1 || o.Depth > 16384,
		o.Warmup < 0, o.Duration < 0, o.signal < 0, o.inline < 0, o.timeoutExp < 0 || o.timeoutExp > 31, o.port < 0 || o.port > 65535:
		return fmt.Errorf("a number is out of range")
	case !bw && o.QPs != 1:
		return fmt.Errorf("latency tests have one queue pair")
	case o.sweep && o.Test == "atomic_lat":
		return fmt.Errorf("atomics have one size")
	}
	if o.signal == 0 {
		o.signal = max(o.Depth/4, 1)
	}
	o.signal = min(o.signal, o.Depth)
	return nil
}

func (p params) qpType() verbs.QPType {
	return map[string]verbs.QPType{"RC": verbs.RC, "UC": verbs.UC, "UD": verbs.UD}[p.Transport]
}

func (p params) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain numbers and strings
	}
	return b
}

// agree compares the peer's parameters with ours.
func (p params) agree(b []byte) error {
	var peer params
	if err := json.Unmarshal(b, &peer); err != nil {
		return fmt.Errorf("the peer is no rdmabench: %w", err)
	}
	if peer != p {
		return fmt.Errorf("the peer was started with other parameters: here %s, there %s", p.encode(), peer.encode())
	}
	return nil
}

// sweep lists the sizes of -a.
func sweep(test, transport string) []int {
	limit := 8 << 20
	if transport == "UD" {
		limit = 4096
	}
	var out []int
	for s := 2; s <= limit; s *= 2 {
		out = append(out, s)
	}
	return out
}
