package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// profiled is for how long passes are repeated under the profiler, which takes a sample each 10 ms of
// CPU time.
const profiled = 2 * time.Second

// profile writes a CPU profile of our side. No pass of it is measured.
func (b *Benchmark) profile(ctx context.Context, e Env) (err error) {
	if err := os.MkdirAll(e.Profiles, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(e.Profiles, b.Name+".pprof"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	for _, s := range b.Sides {
		for start := time.Now(); s.Name == "ours" && time.Since(start) < profiled; {
			if _, err := bounded(ctx, e, s.Run); err != nil {
				return err
			}
		}
	}
	return nil
}
