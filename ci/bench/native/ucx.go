package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// ucxRows are beside Debian's UCX, whose programs have the simulated devices of the library preload.
func ucxRows(preload string) []row {
	if preload == "" {
		return nil
	}
	beside := func(name, baseline string, target *measure.Target, r row, times float64, args ...string) row {
		open := r.open
		r.name, r.baseline, r.target, r.few = name, "ucx_perftest "+baseline, target, 100
		r.open = func(o *opened) (ours, base operations, err error) {
			ours, _, err = open(o)
			return many(ours), many(ucx(preload, times, args...)), err
		}
		return r
	}
	all := make(map[string]row)
	for _, r := range append(srdRowsOn("", devices), verbsRows()...) {
		all[r.name] = r
	}
	return []row{
		// UCX's ping-pong in one process sends a message to itself, and halves the time. Ours are two messages.
		beside("srd_pingpong_64B_ucx", "ud_verbs am_lat", measure.AtMost(1.3), all["srd_pingpong_64B"], 4, "-x", "ud_verbs", "-t", "am_lat", "-s", "64"),
		beside("srd_rate_64B_ucx", "ud_verbs am_bw", measure.AtLeast(0.8), all["srd_rate_64B"], 1, "-x", "ud_verbs", "-t", "am_bw", "-s", "64"),
		beside("requester_read_ucx", "rc_verbs get", nil, all["requester_read"], 1, "-x", "rc_verbs", "-t", "get", "-D", "bcopy", "-s", "64"),
	}
}

// ucxBlock is how many operations a program of UCX does for each that is asked for, since it takes long to start.
const ucxBlock = 1000

// many carries out ucxBlock operations for each.
func many(ops operations) operations {
	return func(ctx context.Context, n int) (time.Duration, error) {
		took, err := ops(ctx, n*ucxBlock)
		return took / ucxBlock, err
	}
}

// ucx returns operations of ucx_perftest in one process, each as many of UCX's.
func ucx(preload string, times float64, args ...string) operations {
	return func(ctx context.Context, n int) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, "ucx_perftest", append([]string{"-l", "-d", "mlx5_0:1", "-n", strconv.Itoa(n)}, args...)...)
		cmd.Env = append(append(os.Environ(), "SIMHCA=mlx5", "LD_PRELOAD="+preload), rig.UCX...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("ucx_perftest: %w: %s", err, rig.Tail(out))
		}
		us, err := rig.UCXLatency(out)
		return time.Duration(us * times * float64(n) * float64(time.Microsecond)), err
	}
}
