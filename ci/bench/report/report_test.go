package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const kept = "../../../docs/benchmarks"

func written(t *testing.T, fresh string) string {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(&b, fresh, kept, Environment{Time: time.Unix(0, 0), System: "a <system>", Kernel: "6.1", Processor: "p", Build: "b"})
	require.NoError(t, err)
	require.Equal(t, len(suites)+1, n)
	return b.String()
}

// Each table is there with all of its rows, each picture is well-formed, and nothing is loaded.
func TestPage(t *testing.T) {
	p := written(t, t.TempDir())
	require.NotRegexp(t, `(src|href)="[^#]|url\(|<script|@import`, p, "it needs no network")
	require.Contains(t, p, "a &lt;system&gt;")
	sections := strings.Split(p, "<section ")[1:]
	require.Len(t, sections, len(suites)+1)
	for i, s := range sections {
		name := append(append([]string{}, suites...), hitRates)[i]
		require.True(t, strings.HasPrefix(s, `id="`+name+`"`), name)
		table, err := os.ReadFile(filepath.Join(kept, name+".csv"))
		require.NoError(t, err)
		require.Equal(t, bytes.Count(table, []byte("\n")), strings.Count(s, "<tr>"), "%s: rows and the heading", name)
		pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(s, -1)
		require.NotEmpty(t, pictures, name)
		for _, picture := range pictures {
			d := xml.NewDecoder(strings.NewReader(picture))
			for err == nil {
				_, err = d.Token()
			}
			require.ErrorIs(t, err, io.EOF, picture)
			require.NotContains(t, picture, "NaN")
			require.NotContains(t, picture, "Inf")
			require.NotContains(t, picture, "%!", "a verb of fmt")
			err = nil
		}
	}
	for _, title := range []string{"Rate of several goroutines", "Updates by several clients", "on a network that loses packets", "Goodput of a link with incast",
		"p99 of small READs", "Hit rate", "goverbs and its baseline, in ns"} {
		require.Contains(t, p, title)
	}
}

// A run's own table takes the place of the one in docs, and a broken one is an error.
func TestPageOfARun(t *testing.T) {
	dir := t.TempDir()
	heading := "benchmark,kernel,clock,ours,baseline,unit,ratio,interval,level,A/A interval,pairs,failed,target,verdict\n"
	path := filepath.Join(dir, "dc.csv")
	require.NoError(t, os.WriteFile(path, []byte(heading+`warm,6.1,wall,2,1,us,2.000,"[1.900, 2.100]",96.9 %,"[1.000, 1.000]",6,,<= 3,met
alone,6.1,wall,2,,us,,"[1.000, 3.000]",96.9 %,,6,,<= 4,met
plain,6.1,wall,2,,us,,,,,,,,`+"\n"), 0o600))
	p := written(t, dir)
	require.Contains(t, p, path+", 3 rows: 2 met, 1 without a target.")
	p = p[strings.Index(p, `<section id="dc">`):strings.Index(p, `<section id="lockoffload">`)]
	require.Equal(t, 2, strings.Count(p, "<svg"), "one of ratios, one of shares")
	require.Equal(t, 2, strings.Count(p, `stroke-width="2"`), "with an interval each")
	for _, text := range []string{"<title>warm, ratio: 2 </title>", ">warm</text>", "<title>alone, share: 0.5 </title>", ">2 us, target &lt;= 4</text>",
		` class="title">Share of the target, with its interval (Linux 6.1, wall clock)</text>`} {
		require.Contains(t, p, text)
	}
	for _, bad := range []string{"", "a,b\n1,2\n", heading + "warm,6.1,wall,x,1,us,2,,,,,,,\n", heading + "warm\n"} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := Write(io.Discard, dir, kept, Environment{})
		require.Error(t, err, bad)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.5", 9_999: "9999", 12_340: "12.34k", 2e6: "2M"} {
		require.Equal(t, want, number(v))
	}
}

func TestScale(t *testing.T) {
	s, ok := scaleOf([]line{{points: []point{{value: 3}, {value: 900}}}}, true)
	require.True(t, ok)
	require.Equal(t, scale{2, 1000, true}, s)
	require.Equal(t, []float64{0, 1}, []float64{s.at(2), s.at(1000)})
	require.Less(t, len(s.ticks()), 10)
	s, ok = scaleOf([]line{{points: []point{{value: 80}}}}, false)
	require.True(t, ok)
	require.InDelta(t, 1/1.05, s.at(80), 1e-9)
	_, ok = scaleOf([]line{{points: []point{{}}}}, true)
	require.False(t, ok, "nothing to draw")
}
