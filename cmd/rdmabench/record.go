package main

import (
	"context"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Samples are kept as they are and go into the histogram between two turns,
// outside of what is measured: when so many are there, or so much time has
// passed.
const (
	pauseSamples = 128
	pauseTime    = int64(8 * time.Millisecond)
)

// recorder keeps the times of turns.
type recorder struct {
	divide  int64 // of turns, what a sample is
	meter   *meter
	samples [pauseSamples]int64
	n       int
	paused  int64 // clock at the last pause

	hist     *hdrhistogram.Histogram // nanoseconds
	count    int
	sum      float64
	min, max int64
}

// longest is what the histogram can hold, with four digits.
const longest = int64(100 * time.Second)

// newRecorder makes a recorder. Without a meter what it records is thrown away.
func newRecorder(divide int64, m *meter) *recorder {
	r := &recorder{divide: divide, meter: m}
	if m != nil {
		r.hist = hdrhistogram.New(1, longest, 4)
	}
	return r
}

// begin is the time at which the first turn begins.
func (r *recorder) begin() int64 {
	r.paused = clock()
	return r.paused
}

// turn records the turn that began at prev and ends now, and answers when the
// next one begins: now, or after a pause if one is due.
func (r *recorder) turn(ctx context.Context, prev int64) (now int64, err error) {
	now = clock()
	if r.add(now, now-prev) {
		return r.pause(ctx)
	}
	return now, nil
}

// add records a turn that ended now and tells whether a pause is due.
func (r *recorder) add(now, took int64) bool {
	r.samples[r.n] = took
	r.n++
	return r.n == len(r.samples) || now-r.paused > pauseTime
}

// pause is made between two turns. It files the samples away, shows progress
// and lets the runtime and ctx have their say, and answers when the next turn
// begins.
func (r *recorder) pause(ctx context.Context) (now int64, err error) {
	r.flush()
	if r.meter != nil {
		r.meter.show(r.count)
	}
	if err := rest(ctx); err != nil {
		return 0, err
	}
	if runtime.NumCPU() == 1 {
		// The scheduling point woke an idle thread of the runtime to look for
		// work; it runs now rather than during the next turn.
		yieldCPU()
	}
	return r.begin(), nil
}

func (r *recorder) flush() {
	samples := r.samples[:r.n]
	r.n = 0
	if r.hist == nil {
		return
	}
	for _, v := range samples {
		v = min(max(v/r.divide, 1), longest)
		if r.count == 0 || v < r.min {
			r.min = v
		}
		r.max = max(r.max, v)
		r.sum += float64(v)
		r.count++
		_ = r.hist.RecordValue(v) // fails outside of its range only
	}
}
