package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
)

// rdmabench runs our program and picks a value of its JSON. The first argument is
// the test.
func rdmabench(program string, pick func(result) float64, args []string, env ...string) harness.Pass {
	warm := sync.OnceValue(func() error { return rig.Warm(program) })
	return harness.One(func(ctx context.Context) (float64, error) {
		if err := warm(); err != nil {
			return 0, err
		}
		c, s, err := rig.Endpoints()
		if err != nil {
			return 0, err
		}
		port := rig.NextPort()
		side := func(end lab.Endpoint) []string {
			return append([]string{program, args[0], "-d", end.Device, "-p", port, "-json"}, args[1:]...)
		}
		out, err := rig.Processes(ctx, side(s), append(side(c), s.Addr.String()), env...)
		if err != nil {
			return 0, err
		}
		var r result
		if err := json.Unmarshal(out, &r); err != nil {
			return 0, fmt.Errorf("rdmabench: %w: %s", err, rig.Tail(out))
		}
		return pick(r), nil
	})
}

// result is what of rdmabench's JSON is used.
type result struct {
	Latency struct {
		P50 float64 `json:"p50"`
		Avg float64 `json:"avg"`
	} `json:"lat_us"`
	MiBps float64 `json:"bw_MiBps"`
}

func p50(r result) float64   { return r.Latency.P50 }
func mibps(r result) float64 { return r.MiBps }
