package srd

import (
	"context"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/srd"
)

// polledRounds are those of UCX.
const polledRounds = 20000

// polling owns a CPU, as both programs do that it stands beside: neither of them sleeps until a message comes.
var polling = srd.Config{PollFor: 10 * time.Millisecond}

// mean is what UCX's program and fi_pingpong report.
func mean(n int, f func() error) (float64, error) {
	begin := time.Now()
	for range n {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return time.Since(begin).Seconds() * 1e6 / float64(n), nil
}

// BesideRXD and BesideUCX compare a ping-pong with those over libfabric's reliable datagrams and
// over UCX's, on devices that are fast enough for the wall clock.
func BesideRXD() harness.Benchmark {
	return besideWall("processes_srd_pingpong_64B_vs_rxd", 0.5, harness.Side{Name: "fi_pingpong verbs;ofi_rxd", Run: fabric()})
}

func BesideUCX() harness.Benchmark {
	return besideWall("processes_srd_pingpong_64B_vs_ucx", 1.3, harness.Side{Name: "ucx_perftest ud_verbs am_lat", Run: one(ucx)})
}

func besideWall(name string, limit float64, baseline harness.Side) harness.Benchmark {
	f := harness.Figure{Name: name, Unit: "us", Target: measure.AtMost(limit)}
	return harness.Compare(f, []string{harness.Wall}, rig.ByRoles("srd-polling-echo", "srd-polling-pingpong", "GOMAXPROCS=1"), baseline)
}

// ucx is the mean of the same half of UCX's ping-pong.
func ucx(ctx context.Context) (float64, error) {
	c, s, err := rig.Endpoints()
	if err != nil {
		return 0, err
	}
	port := rig.NextPort()
	client := []string{"ucx_perftest", "-p", port, "-d", c.Device + ":1", "-x", "ud_verbs", "-t", "am_lat", "-s", strconv.Itoa(small), "-n", strconv.Itoa(polledRounds), s.Addr.String()}
	out, err := rig.Processes(ctx, []string{"ucx_perftest", "-p", port}, client, rig.UCX...)
	if err != nil {
		return 0, err
	}
	return rig.UCXLatency(out)
}
