package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func measured(t *testing.T, size int) *result {
	p := parsed(t, "read_lat").params
	p.Size = size
	rec := newRecorder(1, newMeter(false, nil, p), 1000)
	for i := range int64(1000) {
		rec.add(0, 50_000+i*i)
	}
	rec.flush()
	r := newResult(p, used)
	r.latencies(rec)
	return r
}

func TestPlots(t *testing.T) {
	rate := func(size int) *result {
		r := newResult(parsed(t, "read_bw").params, used)
		r.p.Size, r.rates.MiBps = size, float64(size)/10
		return r
	}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		results []*result
		want    []string
	}{
		"distribution": {[]*result{measured(t, 64)}, []string{"read_lat RC, 64 bytes", "latency [us]; p50", "at most that long"}},
		"latencies":    {[]*result{measured(t, 2), measured(t, 4), measured(t, 8)}, []string{"2 to 8 bytes", "p50", "p99", "message size"}},
		"rates":        {[]*result{rate(2), rate(64), rate(65536)}, []string{"read_bw RC, 2 to 65536 bytes", "MiB/s", "average"}},
	} {
		path := filepath.Join(dir, name+".svg")
		require.NoError(t, draw(path, c.results))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, w := range c.want {
			require.Contains(t, string(b), w, name)
		}
		require.NoError(t, draw(filepath.Join(dir, name+".png"), c.results))
		b, err = os.ReadFile(filepath.Join(dir, name+".png"))
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(b, []byte("\x89PNG")), name)
	}
}
