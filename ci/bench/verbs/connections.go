package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// connSetup is the time until a connection stands, through our binding of
// librdmacm and through librdmacm in C, to a listener in C. Each side is a
// process of its own. The Go runtime's monitor thread is kept calm as rdmabench
// -e does.
func connSetup() harness.Benchmark {
	f := harness.Figure{Name: "conn_setup", Unit: "us", Target: measure.AtMost(1.1)}
	return harness.Compare(f, instructions, rig.ByRoles("conn-server", "conn-go", rig.Calm),
		harness.Side{Name: "librdmacm in C", Run: rig.ByRoles("conn-server", "conn-c", rig.Calm)})
}

// connections is how many a pass makes.
const connections = 60

// Roles are what passes run as processes of their own.
var Roles = map[string]rig.Role{
	"conn-server": func(_ context.Context, at string) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		return standin.ConnectServer(to)
	},
	"conn-go": goConnects,
	"conn-c": func(_ context.Context, at string) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		ns := make([]int64, connections)
		if err := standin.ConnectLoop(to, 0, ns); err != nil {
			return err
		}
		fmt.Println(rig.MedianMicros(ns))
		return nil
	},
}

// sharedSetup makes queue pairs on one protection domain and completion queue,
// as the C loop does.
func sharedSetup() func(*rdmacm.Setup) error {
	type shared struct {
		pd *verbs.PD
		cq *verbs.CQ
	}
	var once sync.Once
	var s shared
	var err error
	return func(c *rdmacm.Setup) error {
		once.Do(func() {
			if s.pd, err = c.Device.AllocPD(); err == nil {
				s.cq, err = c.Device.CreateCQ(verbs.CQConfig{Depth: 64, PollOnly: true})
			}
		})
		if err != nil {
			return err
		}
		c.QP, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, GID: c.GID, MaxSendWR: 16, MaxRecvWR: 16, KeepReset: true})
		return err
	}
}

// goConnects prints the median time of a connection in microseconds.
func goConnects(ctx context.Context, to string) error {
	m, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	ns := make([]int64, connections)
	cfg := rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: sharedSetup()}}
	for i := range ns {
		start := time.Now()
		c, err := m.Dial(ctx, to, cfg)
		if err != nil {
			return err
		}
		ns[i] = int64(time.Since(start))
		if err := errors.Join(c.Disconnect(ctx), c.Close(), c.QP().Close()); err != nil {
			return err
		}
	}
	fmt.Println(rig.MedianMicros(ns))
	return nil
}
