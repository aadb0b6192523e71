package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// result is what a client measured.
type result struct {
	p      params
	device string
	hist   *hdrhistogram.Histogram // nanoseconds; complete after settle
	raw    []int64                 // recorded later: a histogram costs more than an append

	mibps, peakMiBps, msgRate float64

	begun, shown time.Time
	count        int
}

func newResult(p params, device string) *result {
	return &result{p: p, device: device, hist: hdrhistogram.New(1, int64(time.Minute), 4), begun: time.Now(),
		raw: make([]int64, 0, min(p.Iterations, 1<<16))}
}

func (r *result) add(d time.Duration) {
	if len(r.raw) == cap(r.raw) {
		r.settle()
	}
	r.count++
	r.raw = append(r.raw, int64(d))
}

// settle moves what was added into the histogram.
func (r *result) settle() {
	for _, d := range r.raw {
		r.hist.RecordValue(max(d, 1))
	}
	r.raw = r.raw[:0]
}

// rate is the result of a bandwidth test: messages in a time, and the shortest
// time that one of them took.
func (r *result) rate(messages, size int, took, shortest time.Duration) {
	r.count = messages
	r.msgRate = float64(messages) / took.Seconds()
	r.mibps = r.msgRate * float64(size) / (1 << 20)
	r.peakMiBps = float64(size) / (1 << 20) / shortest.Seconds()
}

type latencies struct {
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	Avg  float64 `json:"avg"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func (r *result) latencies() *latencies {
	r.settle()
	us := func(ns int64) float64 { return float64(ns) / 1000 }
	q := func(p float64) float64 { return us(r.hist.ValueAtQuantile(p)) }
	return &latencies{us(r.hist.Min()), q(50), r.hist.Mean() / 1000, q(90), q(99), q(99.9), us(r.hist.Max())}
}

// report is the JSON form. Latencies are microseconds, rates per second.
type report struct {
	Test       string     `json:"test"`
	Transport  string     `json:"transport"`
	Size       int        `json:"size"`
	Iterations int        `json:"iterations"`
	Events     bool       `json:"events"`
	Device     string     `json:"device"`
	QPs        int        `json:"qps"`
	Depth      int        `json:"tx_depth"`
	Latency    *latencies `json:"lat_us,omitempty"`
	MBps       float64    `json:"bw_MBps,omitempty"`  // 10^6 bytes
	MiBps      float64    `json:"bw_MiBps,omitempty"` // 2^20 bytes
	PeakMiBps  float64    `json:"bw_peak_MiBps,omitempty"`
	MsgRate    float64    `json:"msg_rate,omitempty"` // messages
}

func (r *result) report() report {
	out := report{Test: r.p.Test, Transport: r.p.Transport, Size: r.p.Size, Iterations: r.count, Events: r.p.Events,
		Device: r.device, QPs: r.p.QPs, Depth: r.p.Depth}
	if r.msgRate > 0 {
		out.MiBps, out.PeakMiBps, out.MsgRate = r.mibps, r.peakMiBps, r.msgRate
		out.MBps = r.mibps * (1 << 20) / 1e6
	} else {
		out.Latency = r.latencies()
	}
	return out
}

func (r *result) print(w io.Writer, asJSON, distribution, header bool) error {
	rep := r.report()
	if asJSON {
		return json.NewEncoder(w).Encode(rep)
	}
	if l := rep.Latency; l != nil {
		if header {
			fmt.Fprintf(w, "%10s %11s %9s %9s %9s %9s %9s %9s %9s\n", "bytes", "iterations", "min[us]", "p50[us]",
				"avg[us]", "p90[us]", "p99[us]", "p99.9[us]", "max[us]")
		}
		fmt.Fprintf(w, "%10d %11d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", rep.Size, rep.Iterations,
			l.Min, l.P50, l.Avg, l.P90, l.P99, l.P999, l.Max)
	} else {
		if header {
			fmt.Fprintf(w, "%10s %11s %16s %19s %14s\n", "bytes", "iterations", "BW peak[MiB/s]", "BW average[MiB/s]", "MsgRate[Mpps]")
		}
		fmt.Fprintf(w, "%10d %11d %16.2f %19.2f %14.6f\n", rep.Size, rep.Iterations, rep.PeakMiBps, rep.MiBps, rep.MsgRate/1e6)
	}
	if distribution && rep.Latency != nil {
		_, err := r.hist.PercentilesPrint(w, 5, 1000)
		return err
	}
	return nil
}

// progress shows every two seconds how far a long run is, and when it ends.
func (s *session) progress(r *result) {
	if r.count%256 != 0 {
		return // the clock costs more than the counter
	}
	now := time.Now()
	if now.Sub(r.begun) < 2*time.Second || now.Sub(r.shown) < 2*time.Second {
		return
	}
	r.shown = now
	if !s.o.progress && !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	if s.p.Duration > 0 {
		fmt.Fprintf(os.Stderr, "rdmabench: %v of %v\n", now.Sub(r.begun).Round(time.Second), s.p.Duration)
		return
	}
	if r.count > 0 {
		left := time.Duration(float64(now.Sub(r.begun)) / float64(r.count) * float64(s.p.Iterations-r.count))
		fmt.Fprintf(os.Stderr, "rdmabench: %d of %d, about %v left\n", r.count, s.p.Iterations, left.Round(time.Second))
	}
}

// readable tells whether the peer has sent something, or is gone.
func (s *session) readable() bool {
	sc, ok := s.conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	there := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		there = n != 0 || err != nil
	})
	return there || err != nil
}
