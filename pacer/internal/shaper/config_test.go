package shaper

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Zero values stand for defaults, some of which follow others; nothing else is changed.
func TestDefaults(t *testing.T) {
	c, err := Config{}.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, Config{MTU: 4096, Header: 66, Slice: 16 * kib, Small: 512, Units: 16, Ord: 128, MaxPasses: 16, Overdue: 200 * time.Millisecond,
		Threshold: 4 * (16*kib + 4*66), TuneMax: 64 << 20, Reserve: 4 * kib, Burst: 2 * (16*kib + 4*66), OutBurst: 256 * kib,
		Classes: []Class{{Name: "default", Weight: 1}}}, c)
	classes := []Class{{Name: "a"}, {Name: "b", Weight: 3, Priority: 2, Cap: 5}}
	all := Config{Threshold: 100, Reserve: 10, Small: 1, Rate: 2, Burst: 3, Outbound: 4, OutBurst: 5, MTU: 6, Header: 7, Slice: 12, Units: 8, Ord: 9, Device: 10,
		Policy: Deficit, Overdue: -1, MaxPasses: 11, Classes: classes, Tune: true, TuneMax: 13}
	c, err = all.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, []Class{{Name: "a", Weight: 1}, classes[1]}, c.Classes)
	require.Zero(t, classes[0].Weight, "they are the program's")
	c.Classes = classes
	require.Equal(t, all, c)
	c, err = Config{Threshold: 800}.WithDefaults()
	require.NoError(t, err)
	require.EqualValues(t, 100, c.Reserve)
}

// A sub-request is a number of whole packets, at least one.
func TestSlices(t *testing.T) {
	for slice, want := range map[int]int{1: kib, kib: kib, 2*kib - 1: kib, 2 * kib: 2 * kib, -1: -1, math.MaxInt: MaxLength} {
		c, err := Config{MTU: kib, Slice: slice}.WithDefaults()
		require.NoError(t, err)
		require.Equal(t, want, c.Slice)
	}
}

// Each limit of a configuration is the last value that is accepted.
func TestLimitsOfConfigurations(t *testing.T) {
	classes := func(k Class) []Class { return []Class{k} }
	for i, c := range []struct{ good, bad Config }{
		{Config{Threshold: maxBytes}, Config{Threshold: maxBytes + 1}},
		{Config{Threshold: 1}, Config{Threshold: -1}},
		{Config{Threshold: 5, Reserve: 5}, Config{Threshold: 5, Reserve: 6}},
		{Config{Small: 1}, Config{Small: -1}},
		{Config{Burst: 1}, Config{Burst: -1}},
		{Config{OutBurst: maxBytes}, Config{OutBurst: maxBytes + 1}},
		{Config{MTU: MaxLength}, Config{MTU: MaxLength + 1}},
		{Config{Header: maxHeader}, Config{Header: maxHeader + 1}},
		{Config{Units: MaxUnits}, Config{Units: MaxUnits + 1}},
		{Config{Ord: 1}, Config{Ord: -1}},
		{Config{Device: 1}, Config{Device: -1}},
		{Config{MaxPasses: 1}, Config{MaxPasses: -1}},
		{Config{TuneMax: 1}, Config{TuneMax: -1}},
		{Config{Rate: maxBytes}, Config{Rate: maxBytes + 1}},
		{Config{Outbound: maxBytes}, Config{Outbound: maxBytes + 1}},
		{Config{Rate: 1e-9}, Config{Rate: -1e-9}},
		{Config{Outbound: 1e-9}, Config{Outbound: -1e-9}},
		{Config{Policy: Deficit}, Config{Policy: Deficit + 1}},
		{Config{Classes: make([]Class, MaxClasses)}, Config{Classes: make([]Class, MaxClasses+1)}},
		{Config{Classes: classes(Class{Weight: 1 << 20})}, Config{Classes: classes(Class{Weight: 1<<20 + 1})}},
		{Config{Classes: classes(Class{Weight: 1})}, Config{Classes: classes(Class{Weight: -1})}},
		{Config{Classes: classes(Class{Cap: maxBytes})}, Config{Classes: classes(Class{Cap: maxBytes + 1})}},
		{Config{Classes: classes(Class{Cap: 1})}, Config{Classes: classes(Class{Cap: -1})}},
		{Config{Overdue: 24 * time.Hour}, Config{Overdue: 24*time.Hour + 1}},
	} {
		_, err := c.good.WithDefaults()
		require.NoError(t, err, i)
		_, err = c.bad.WithDefaults()
		require.ErrorIs(t, err, ErrConfig, i)
	}
}

// A flow has limits of its own, and only a flow that there is, and is idle, is removed.
func TestFlows(t *testing.T) {
	b := newBench(t, Config{MTU: kib, Slice: kib, Threshold: 1 << 30}, FlowConfig{}, FlowConfig{MaxReads: 1, Depth: 3})
	for _, c := range []FlowConfig{{Weight: -1}, {MaxReads: -1}, {Depth: -1}} {
		_, err := b.s.AddFlow(c)
		require.ErrorIs(t, err, ErrConfig)
	}
	b.get(0, 2*kib)
	b.get(1, 2*kib)
	require.Len(t, b.all(), 3, "MaxReads")
	for range 3 {
		b.get(1, 10, kind(Put))
	}
	require.Len(t, b.all(), 2, "Depth")
	for _, f := range []Flow{-1, 2, b.flows[0]} {
		require.False(t, b.s.RemoveFlow(f))
	}
	_, err := b.s.Submit(2, Command{}, 0)
	require.ErrorIs(t, err, ErrConfig)
	_, err = b.s.Submit(-1, Command{}, 0)
	require.ErrorIs(t, err, ErrConfig)
	b.s.FailAll(b.flows[0], false)
	require.True(t, b.s.RemoveFlow(b.flows[0]))
	require.False(t, b.s.RemoveFlow(b.flows[0]))
	_, err = b.s.Submit(b.flows[0], Command{}, 0)
	require.ErrorIs(t, err, ErrConfig)
	f, err := b.s.AddFlow(FlowConfig{})
	require.NoError(t, err)
	require.Equal(t, b.flows[0], f, "its place is used again")
}

// A bucket fills at its rate up to its burst, has what is in it, and says when it has more.
func TestBucket(t *testing.T) {
	var b bucket
	has := func(n, extra int64) time.Duration {
		ok, at := b.has(n, extra)
		require.Equal(t, ok, at == 0)
		return at
	}
	b.take(1 << 40)
	b.refill(time.Hour)
	require.Zero(t, has(1<<50, 0), "without a rate there is no limit")
	b.set(1000, 500)
	require.EqualValues(t, 500, b.tokens, "full at first")
	b.take(400)
	b.refill(time.Hour + 100*time.Millisecond)
	require.InDelta(t, 200, b.tokens, 1e-9)
	b.refill(time.Hour + time.Second)
	require.Zero(t, has(500, 0))
	require.Zero(t, has(9000, 0), "more than it holds may go when it is full")
	b.take(400)
	require.Zero(t, has(100, 0))
	require.Equal(t, time.Hour+time.Second+time.Millisecond+1, has(101, 0))
	require.Equal(t, time.Hour+time.Second+400*time.Millisecond+1, has(9000, 0))
	require.Zero(t, has(110, 10))
	b.refill(time.Hour + time.Second + 50*time.Millisecond)
	require.InDelta(t, 150, b.tokens, 1e-9)
	b.refill(time.Hour) // a clock may go back
	b.refill(time.Hour + time.Second + 50*time.Millisecond)
	require.InDelta(t, 150, b.tokens, 1e-9)
	b.set(2000, 120)
	require.EqualValues(t, 120, b.tokens)
	b.set(2000, 800)
	require.EqualValues(t, 120, b.tokens)
	b.take(200)
	b.refill(2 * time.Hour)
	require.EqualValues(t, 800, b.tokens)
}

// What is solicited before a change has the old rate, and classes and limits are as they are then.
func TestReconfigure(t *testing.T) {
	c := Config{MTU: kib, Slice: kib, Threshold: 1 << 30, Rate: 1e6, Burst: 1 << 20, Outbound: 1e6, OutBurst: 1 << 20, Classes: []Class{{Name: "a"}}}
	b := newBench(t, c, FlowConfig{})
	b.s.in.take(1 << 20)
	b.s.out.take(1 << 20)
	c.Rate, c.Outbound, c.Threshold, c.Classes, c.Header = 2e6, 2e6, 9000, []Class{{Name: "b", Weight: 7}, {Name: "c"}}, 1
	require.NoError(t, b.s.Reconfigure(c, time.Second/2))
	require.InDelta(t, 5e5, b.s.in.tokens, 1)
	require.InDelta(t, 5e5, b.s.out.tokens, 1)
	b.s.in.refill(time.Second * 6 / 10)
	require.InDelta(t, 7e5, b.s.in.tokens, 1)
	require.EqualValues(t, 9000, b.s.Threshold())
	require.Equal(t, 2, b.s.Classes())
	require.Equal(t, "b", b.s.ClassStats(0).Name)
	require.Equal(t, 7, b.s.classes[0].Weight)
	b.get(0, 10, inClass(1))
	require.Equal(t, 1, b.s.ClassStats(1).Queued)
}
