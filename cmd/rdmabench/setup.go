package main

import (
	"fmt"
	"runtime"
)

// setup is what a figure depends on besides the test itself: two results with
// different setups are not to be compared. Yield, list and the like are what was
// used, whether asked for or not.
type setup struct {
	Events   bool    `json:"events"` // completions are waited for by events, not polled for
	Yield    bool    `json:"yield"`  // the CPU is given up between fruitless polls
	QPs      int     `json:"qps"`
	Depth    int     `json:"tx_depth"`
	RecvSize int     `json:"rx_depth,omitempty"`
	List     int     `json:"list"`   // requests in one post; 0: as many as there is room for
	Signal   int     `json:"signal"` // every so many requests one asks for a completion
	Inline   bool    `json:"inline"`
	Warmup   int     `json:"warmup"`               // iterations before those that are measured
	Duration float64 `json:"duration_s,omitempty"` // of -D, margins included
	Margin   float64 `json:"margin_s,omitempty"`   // not measured, at the start and at the end
	MTU      int     `json:"mtu"`                  // bytes
	Device   string  `json:"device"`
	Port     int     `json:"port"`
	GIDIndex int     `json:"gid_index"`
	GID      string  `json:"gid"`
	Kernel   string  `json:"kernel"`
	CPUs     int     `json:"cpus"`
	Procs    int     `json:"gomaxprocs"`
	Go       string  `json:"go"`
}

func (s *session) setup(h *host) (setup, error) {
	l := s.links[0]
	out := setup{Events: s.p.Events, Yield: s.o.yield, QPs: s.p.QPs, Depth: 1, RecvSize: s.recvDepth(), List: 1, Signal: 1,
		Inline: s.flags(l) != 0, Warmup: s.p.Warmup, Duration: s.p.Duration.Seconds(), Margin: s.o.margin.Seconds(),
		MTU: h.mtu.Bytes(), Device: h.name, Port: s.o.port, GIDIndex: int(h.gid.Index), GID: h.gid.GID.String(),
		Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	if s.p.bandwidth() {
		out.Depth, out.List, out.Signal = s.o.depth, min(s.o.list, s.o.depth), s.o.signalEvery(s.p.Size)
	}
	if s.p.Transport != "UD" { // a datagram is one packet of the port's
		attr, err := l.qp.Query()
		if err != nil {
			return out, err
		}
		out.MTU = attr.PathMTU.Bytes()
	}
	return out, nil
}

// line says in the heading of a table what else decides about a figure.
func (s setup) line() string {
	how := "polling"
	if s.Events {
		how = "events"
	}
	if s.Yield {
		how += " and yielding"
	}
	out := fmt.Sprintf("# %s, lists of %d, depth %d, signaled every %d, MTU %d, %s GID %d %s, Linux %s, %d CPUs", how, s.List, s.Depth,
		s.Signal, s.MTU, s.Device, s.GIDIndex, s.GID, s.Kernel, s.CPUs)
	if s.Duration > 0 {
		out += fmt.Sprintf(", measured without the first and the last %g s of %g", s.Margin, s.Duration)
	}
	return out
}
