package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// result is what a client measured.
type result struct {
	p     params
	setup setup
	count int // turns, or messages of all queue pairs
	sent  int // messages of a bandwidth test, with those that were not measured

	hist *hdrhistogram.Histogram // nanoseconds, of a latency test
	lat  latencies

	rates    rates
	received *uint64 // by the server
}

// latencies are microseconds. Between two samples the program did nothing else,
// as in perftest, except in the pauses: what would have happened in those is
// missing in the percentiles.
type latencies struct {
	Min    float64 `json:"min"`
	P50    float64 `json:"p50"`
	Avg    float64 `json:"avg"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p99.9"`
	Max    float64 `json:"max"`
	Stdev  float64 `json:"stdev"`
	Pauses int     `json:"pauses"`
	Paused float64 `json:"paused"` // in all pauses together
}

type rates struct {
	MBps     float64 `json:"bw_MBps"`                 // 10^6 bytes a second
	MiBps    float64 `json:"bw_MiBps"`                // 2^20 bytes a second
	Peak     float64 `json:"bw_peak_MiBps,omitempty"` // unknown with a duration
	Messages float64 `json:"msg_rate"`                // a second
	Sent     int     `json:"sent"`                    // messages, with those that were not measured
	Received *uint64 `json:"received,omitempty"`      // of these, what the server got, of send_bw
}

func newResult(p params, s setup) *result { return &result{p: p, setup: s} }

func (r *result) latencies(rec *recorder) {
	r.count, r.hist = rec.count, rec.hist
	if r.count == 0 {
		return
	}
	us := func(ns int64) float64 { return float64(ns) / 1000 }
	// The histogram returns the upper end of a bucket.
	q := func(percent float64) float64 { return us(min(rec.hist.ValueAtQuantile(percent), rec.max)) }
	r.lat = latencies{Min: us(rec.min), P50: q(50), Avg: rec.sum / float64(rec.count) / 1000, P90: q(90), P99: q(99), P999: q(99.9), Max: us(rec.max),
		Stdev: rec.deviation() / 1000, Pauses: rec.pauses, Paused: us(rec.pausedTime)}
}

const mebi = 1 << 20

func (r *result) rate(b *sender) {
	r.count, r.sent, r.rates.Sent = b.messages, b.completed, b.completed
	took := float64(b.end-b.begun) / 1e9
	if r.count == 0 || took <= 0 {
		return
	}
	bytes := float64(r.p.Size)
	r.rates.Messages = float64(r.count) / took
	r.rates.MBps = r.rates.Messages * bytes / 1e6
	r.rates.MiBps = r.rates.Messages * bytes / mebi
	if b.trace == nil {
		return
	}
	if ns := b.trace.fastest(); ns > 0 && !math.IsInf(ns, 0) {
		r.rates.Peak = bytes / mebi / (ns / 1e9)
	}
}

// report is the JSON form.
type report struct {
	Test       string `json:"test"`
	Transport  string `json:"transport"`
	Size       int    `json:"size"`       // bytes
	Iterations int    `json:"iterations"` // that were measured, of all queue pairs
	setup
	Latency *latencies `json:"lat_us,omitempty"`
	*rates
	Distribution []bracket `json:"distribution,omitempty"`
}

// bracket of a distribution: so many measurements took at most so long.
type bracket struct {
	Percent float64 `json:"percent"`
	Micros  float64 `json:"us"`
	Count   int64   `json:"count"`
}

func (r *result) report(distribution bool) report {
	out := report{Test: r.p.Test, Transport: r.p.Transport, Size: r.p.Size, Iterations: r.count, setup: r.setup}
	if r.p.bandwidth() {
		out.rates = &r.rates
		out.rates.Received = r.received
		return out
	}
	out.Latency = &r.lat
	if distribution {
		for _, b := range r.hist.CumulativeDistribution() {
			out.Distribution = append(out.Distribution, bracket{b.Quantile, float64(b.ValueAt) / 1000, b.Count})
		}
	}
	return out
}

func (r *result) print(w io.Writer, o *options, heading bool) error {
	rep := r.report(o.histogram)
	if o.json {
		return json.NewEncoder(w).Encode(rep)
	}
	if heading {
		if _, err := fmt.Fprintln(w, r.setup.line()); err != nil {
			return err
		}
	}
	if r.p.bandwidth() {
		return r.printRates(w, heading)
	}
	if heading {
		if _, err := fmt.Fprintf(w, "%10s %11s %9s %9s %9s %9s %9s %9s %9s %9s\n", "bytes", "iterations",
			"min[us]", "p50[us]", "avg[us]", "p90[us]", "p99[us]", "p99.9[us]", "max[us]", "stdev[us]"); err != nil {
			return err
		}
	}
	l := rep.Latency
	_, err := fmt.Fprintf(w, "%10d %11d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", rep.Size, rep.Iterations,
		l.Min, l.P50, l.Avg, l.P90, l.P99, l.P999, l.Max, l.Stdev)
	if err == nil && l.Pauses > 0 {
		_, err = fmt.Fprintf(w, "# %d pauses of %.0f us in all between samples: p99.9 and max do not see them\n", l.Pauses, l.Paused)
	}
	if err == nil && o.histogram {
		_, err = r.hist.PercentilesPrint(w, 5, 1000)
	}
	return err
}

func (r *result) printRates(w io.Writer, heading bool) error {
	if heading {
		if _, err := fmt.Fprintf(w, "%10s %11s %16s %19s %14s\n", "bytes", "iterations",
			"BW peak[MiB/s]", "BW average[MiB/s]", "MsgRate[Mpps]"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%10d %11d %16.2f %19.2f %14.6f\n", r.p.Size, r.count, r.rates.Peak, r.rates.MiBps, r.rates.Messages/1e6)
	if err == nil && r.received != nil && *r.received < uint64(r.sent) {
		_, err = fmt.Fprintf(w, "# the server received %d of %d messages\n", *r.received, r.sent)
	}
	return err
}
