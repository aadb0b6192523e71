package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// mixes are those of the program hitrate, which describes them, with their memory in MiB.
var mixes = []struct {
	name   string
	memory int
}{
	{"64MiB_10KB", 64}, {"64MiB_100KB", 64}, {"64MiB_900KB", 64}, {"128MiB_100KB", 128}, {"256MiB_900KB", 256},
	{"64MiB_1KB", 64}, {"64MiB_10KB_then_100KB", 64},
}

// Native needs no device: what is hit does not depend on the wire, and gateways have simulated devices.
func Native(e harness.Env) (list []harness.Benchmark) {
	for _, mix := range mixes {
		list = append(list, hitRate(e.HitRate, mix.name, mix.memory))
	}
	return append(list, gateways(e.SimHCA)...)
}

// Values of a pass of a mix.
const (
	hitsOurs = iota // percent
	hitsMemcached
	hitsLRU
	overMemcached // in points
	overLRU
	passesOurs
	passesMemcached
	passesLRU
	arenaPerByte
)

// hitRate compares hit rates in one trace. Each pass has a memcached and a seed of its own.
func hitRate(program, mix string, memory int) harness.Benchmark {
	seed := 0
	pass := func(ctx context.Context) ([]float64, error) {
		dir, err := os.MkdirTemp("", "hitrate")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		socket := filepath.Join(dir, "s")
		theirs, err := start(socket, exec.Command("memcached", "-s", socket, "-u", "root", "-m", strconv.Itoa(memory)))
		if err != nil {
			return nil, err
		}
		defer theirs.stop()
		conn, err := soon(func() (net.Conn, error) { return net.Dial("unix", socket) })
		if err != nil {
			return nil, err
		}
		conn.Close()
		seed++
		out, err := exec.CommandContext(ctx, program, "-mix", mix, "-seed", strconv.Itoa(seed), "-memcached", socket).Output()
		if err != nil {
			return nil, fmt.Errorf("hitrate: %w", err)
		}
		type side struct {
			HitRate float64 `json:"hit_rate"`
			Passes  float64 `json:"passes"`
		}
		var v struct {
			Ours, Memcached, LRU side
			PerByte              float64 `json:"arena_bytes_per_stored_byte"`
		}
		if err := json.Unmarshal(out, &v); err != nil {
			return nil, err
		}
		return []float64{
			v.Ours.HitRate, v.Memcached.HitRate, v.LRU.HitRate, v.Ours.HitRate - v.Memcached.HitRate, v.Ours.HitRate - v.LRU.HitRate,
			v.Ours.Passes, v.Memcached.Passes, v.LRU.Passes, v.PerByte,
		}, nil
	}
	name := "hit_rate_" + mix
	figure := func(suffix, unit string, value int, t *measure.Target) harness.Figure {
		return harness.Figure{Name: name + suffix, Unit: unit, Of: "ours", Value: value, Target: t}
	}
	return harness.Benchmark{Name: name, Sides: []harness.Side{{Name: "ours", Run: pass}}, Judged: []string{harness.Wall}, Figures: []harness.Figure{
		figure("", "%", hitsOurs, nil),
		figure("_memcached", "%", hitsMemcached, nil),
		figure("_lru", "%", hitsLRU, nil),
		figure("_over_memcached", "points", overMemcached, measure.AtLeast(-0.5)),
		figure("_over_lru", "points", overLRU, measure.AtLeast(0)),
		figure("_passes", "passes", passesOurs, measure.AtMost(1)),
		figure("_passes_memcached", "passes", passesMemcached, nil),
		figure("_passes_lru", "passes", passesLRU, nil),
		{Name: "arena_bytes_per_stored_byte_" + mix, Unit: "bytes", Of: "ours", Value: arenaPerByte, Target: measure.AtMost(1.25)},
	}}
}
