package main

import (
	"context"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxSamples is how many turns are kept before they have to be filed away,
// which takes a pause.
const maxSamples = 1 << 20

// recorder keeps the times of turns. What the program has to do beside them,
// such as a scheduling point, counts as part of the turn in which it is done,
// as in perftest: a pause would hide what happens in it from the percentiles.
// Pauses are made only to file away a million samples and to show progress, and
// are counted.
type recorder struct {
	divide   int64 // of turns, what a sample is
	meter    *meter
	samples  []int64
	from, to int64 // clock between which turns count, with a duration; else 0
	rested   int64 // clock at the last scheduling point

	hist       *hdrhistogram.Histogram // nanoseconds
	count      int
	sum        float64
	mean, m2   float64 // of Welford's method
	min, max   int64
	pauses     int
	pausedTime int64
}

// longest is what the histogram can hold, with four digits.
const longest = int64(100e9)

// newRecorder makes a recorder for n turns, or as many as fit for forever.
// Without a meter what it records is thrown away.
func newRecorder(divide int64, m *meter, n int) *recorder {
	r := &recorder{divide: divide, meter: m}
	if m != nil {
		r.hist = hdrhistogram.New(1, longest, 4)
		r.samples = make([]int64, 0, min(n+1, maxSamples)) // one more: the last one needs no pause
	}
	return r
}

// touch has the pages of the samples there before the test, so that its turns do not wait
// for them. That takes part of a second where memory is scarce, as in a virtual machine:
// the end of the context is heeded.
func (r *recorder) touch(ctx context.Context) error {
	for part := range slices.Chunk(r.samples[:cap(r.samples)], 1<<14) {
		if err := ctx.Err(); err != nil {
			return err
		}
		clear(part)
	}
	return ctx.Err()
}

// begin is the time at which the first turn begins.
func (r *recorder) begin() int64 {
	r.rested = clock()
	return r.rested
}

// turn records the turn that began at prev and ends now, and returns when the
// next one begins: now, or after a pause if one is due.
func (r *recorder) turn(ctx context.Context, prev int64) (now int64, err error) {
	now = clock()
	if r.add(prev, now) {
		now = r.pause(now, r.flush)
	}
	if now-r.rested < restTime {
		return now, nil
	}
	r.rested = now
	if err := rest(ctx); err != nil {
		return 0, err
	}
	if r.meter != nil && r.meter.due(now) {
		now = r.pause(now, func() { r.meter.show(r.count + len(r.samples)) })
	}
	return now, nil
}

// add records a turn and reports whether there is room for no other.
func (r *recorder) add(prev, now int64) (full bool) {
	if r.hist == nil || r.to != 0 && (prev < r.from || now > r.to) {
		return false
	}
	r.samples = append(r.samples, now-prev)
	return len(r.samples) == cap(r.samples)
}

// pause does something between two turns and returns when the next one begins.
// The last samples of a run are filed away after its end, which is none.
func (r *recorder) pause(now int64, do func()) int64 {
	do()
	then := clock()
	r.pauses++
	r.pausedTime += then - now
	return then
}

func (r *recorder) flush() {
	for _, v := range r.samples {
		v = min(max(v/r.divide, 1), longest)
		if r.count == 0 || v < r.min {
			r.min = v
		}
		r.max = max(r.max, v)
		r.count++
		r.sum += float64(v)
		off := float64(v) - r.mean
		r.mean += off / float64(r.count)
		r.m2 += off * (float64(v) - r.mean)
		_ = r.hist.RecordValue(v) // fails outside of its range only
	}
	r.samples = r.samples[:0]
}

// deviation returns the standard deviation of the samples, in nanoseconds.
func (r *recorder) deviation() float64 {
	if r.count < 2 {
		return 0
	}
	return math.Sqrt(r.m2 / float64(r.count-1))
}
