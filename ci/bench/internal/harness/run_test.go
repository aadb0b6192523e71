package harness

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// suite runs benchmarks on the wall clock and returns the records that were saved
// last.
func suite(t *testing.T, pairs int, list ...Benchmark) ([]measure.Record, error) {
	t.Helper()
	var saved []measure.Record
	err := Run(t.Context(), Env{Clock: Wall, PassLimit: time.Minute}, list, pairs, io.Discard, func(r []measure.Record) error {
		saved = r
		return nil
	})
	return saved, err
}

func always(v ...float64) Pass { return func(context.Context) ([]float64, error) { return v, nil } }

func broken(context.Context) ([]float64, error) { return nil, errors.New("no luck") }

// All sides run equally often, baselines twice, and in every place of the order.
func TestInterleaving(t *testing.T) {
	var order strings.Builder
	side := func(name string, v float64) Side {
		return Side{name, func(context.Context) ([]float64, error) { order.WriteString(name); return []float64{v}, nil }}
	}
	f := Figure{Name: "x", Target: measure.AtMost(2)}
	recs, err := suite(t, 6, Compare(f, []string{Wall}, side("o", 3).Run, side("b", 2)))
	require.NoError(t, err)
	require.Equal(t, "bob"+"obb"+"bbo"+"bob"+"obb"+"bbo", order.String())
	require.Equal(t, 1.5, recs[0].Ratio)
	require.Equal(t, 1.0, recs[0].AALow)
	require.Equal(t, measure.Met, recs[0].Verdict)
}

// Figures share passes: two baselines, and two values of a pass.
func TestFiguresOfTheSamePasses(t *testing.T) {
	b := Benchmark{Name: "g", Judged: []string{Instructions}, Also: []string{Wall},
		Sides: []Side{{"ours", always(6, 0.5)}, {"good", always(3)}, {"naive", always(2)}},
		Figures: []Figure{
			{Name: "g_good", Of: "ours", Baseline: "good", Target: measure.AtLeast(2)},
			{Name: "g_naive", Of: "ours", Baseline: "naive"},
			{Name: "g_tail", Of: "ours", Value: 1},
		}}
	require.True(t, b.On(Wall))
	require.True(t, b.Named([]string{"g_tail"}))
	require.Len(t, b.turns(), 5, "ours once, each baseline twice")
	recs, err := suite(t, 6, b)
	require.NoError(t, err)
	require.Equal(t, []float64{2, 3, 0}, []float64{recs[0].Ratio, recs[1].Ratio, recs[2].Ratio})
	require.Equal(t, 0.5, recs[2].Value)
	require.Empty(t, recs[0].Target, "judged on the other clock alone")
}

// A pass that fails once is repeated and counted, and its error is kept.
func TestPassThatFailsOnce(t *testing.T) {
	calls := 0
	flaky := func(ctx context.Context) ([]float64, error) {
		if calls++; calls == 2 {
			return broken(ctx)
		}
		return []float64{2}, nil
	}
	recs, err := suite(t, 6, Compare(Figure{Name: "x", Target: measure.AtMost(2)}, []string{Wall}, flaky, Side{"b", always(2)}))
	require.NoError(t, err)
	require.Equal(t, 1, recs[0].Failed)
	require.Equal(t, "no luck", recs[0].Error)
	require.Equal(t, measure.Met, recs[0].Verdict)
}

// A benchmark is closed after its passes, whatever came of them, and its profile is written before that.
func TestClose(t *testing.T) {
	var order strings.Builder
	closing := func(p Pass) Benchmark {
		b := Plain(Figure{Name: "x"}, []string{Wall}, func(ctx context.Context) ([]float64, error) { order.WriteString("p"); return p(ctx) })
		b.Close = func() error { order.WriteString("c"); return nil }
		return b
	}
	_, err := suite(t, 2, closing(always(1)), closing(broken))
	require.ErrorContains(t, err, "no luck")
	require.Equal(t, "ppcppc", order.String())

	order.Reset()
	e := Env{Clock: Wall, PassLimit: time.Minute, Profiles: t.TempDir()}
	second := func(context.Context) ([]float64, error) {
		if order.Len() > 1 {
			time.Sleep(profiled)
		}
		return []float64{1}, nil
	}
	require.NoError(t, Run(t.Context(), e, []Benchmark{closing(second)}, 1, io.Discard, func([]measure.Record) error { return nil }))
	require.Equal(t, "ppc", order.String())
	require.FileExists(t, filepath.Join(e.Profiles, "x.pprof"))
}

// A benchmark that cannot be measured is a record, the next one is measured all
// the same, and the run tells at its end.
func TestBenchmarkThatFails(t *testing.T) {
	good := Plain(Figure{Name: "good"}, []string{Wall}, always(1))
	recs, err := suite(t, 6, Compare(Figure{Name: "x", Target: measure.AtMost(2)}, []string{Wall}, always(1), Side{"theirs", broken}), good)
	require.ErrorContains(t, err, "x: theirs: no luck")
	require.Len(t, recs, 2)
	require.Equal(t, measure.Failed, recs[0].Verdict)
	require.Equal(t, "theirs: no luck", recs[0].Error)
	require.Equal(t, 2, recs[0].Failed)
	require.Equal(t, "<= 2", recs[0].Target)
	require.Equal(t, 1.0, recs[1].Value)
}

// A pass that hangs costs its limit and no more, whether it looks at its context
// or not.
func TestPassThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		polite := func(ctx context.Context) ([]float64, error) { <-ctx.Done(); return nil, ctx.Err() }
		recs, err := suite(t, 6, Plain(Figure{Name: "x"}, []string{Wall}, polite), Plain(Figure{Name: "good"}, []string{Wall}, always(1)))
		require.ErrorContains(t, err, "no result within 1m0s")
		require.Equal(t, 2*time.Minute, time.Since(start))
		require.Equal(t, measure.Failed, recs[0].Verdict)
		require.Equal(t, 1.0, recs[1].Value)

		start = time.Now()
		release := make(chan struct{})
		defer close(release)
		deaf := func(context.Context) ([]float64, error) { <-release; return nil, nil }
		_, err = suite(t, 6, Plain(Figure{Name: "x"}, []string{Wall}, deaf))
		require.ErrorIs(t, err, errAbandoned)
		require.Equal(t, time.Minute+abandoned, time.Since(start), "it is not tried again")
	})
}

// A clock that runs ahead of the host's takes no pass its time: it ends when it had some of
// the host's too.
func TestClockThatRunsAhead(t *testing.T) {
	for took, ends := range map[time.Duration]bool{4 * time.Minute: true, 6 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			e := Env{PassLimit: time.Minute, HostClock: func() (time.Duration, error) { return time.Since(start) / 10, nil }}
			_, err := bounded(t.Context(), e, func(ctx context.Context) ([]float64, error) {
				select {
				case <-time.After(took):
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			if ends {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "no result within 1m0s")
			require.Equal(t, 10*minOfHost, time.Since(start))
		})
	}
}

// A choice of names that leaves nothing of a suite makes a file without records.
func TestEmptyList(t *testing.T) {
	recs, err := suite(t, 6)
	require.NoError(t, err)
	require.NotNil(t, recs)
	require.Empty(t, recs)
}

func TestDefaultPairsJudge(t *testing.T) {
	for clock, n := range Pairs {
		require.True(t, measure.Judges(n), clock)
	}
}
