package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/verbs"
)

// connSetup is the time until a connection stands, through our binding of
// librdmacm and through librdmacm in C, to a listener in C. Each side is a
// process of its own: see roles. The Go runtime's monitor thread is kept calm as
// rdmabench -e does.
func connSetup() benchmark {
	const calm = "GODEBUG=schedtrace=1000000000"
	return benchmark{
		name: "conn_setup", unit: "us", baseline: "librdmacm in C", target: measure.AtMost(1.1),
		clocks: []string{"instructions"}, ours: connectBy("conn-server", "conn-go", calm), base: connectBy("conn-server", "conn-c", calm),
	}
}

// connectBy is what the client prints: the median time of a connection.
func connectBy(server, client string, env ...string) pass {
	return func(ctx context.Context) (float64, error) {
		_, s, err := endpoints()
		if err != nil {
			return 0, err
		}
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		to := net.JoinHostPort(s.Addr.String(), nextPort())
		out, err := pairOf(ctx, []string{self, "-role", server, "-at", to}, []string{self, "-role", client, "-at", to}, env...)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
}

// connections is how many a pass makes.
const connections = 60

// roles are what a pass runs as a process of its own.
var roles = map[string]func(ctx context.Context, at string) error{
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
		if err := standin.ConnectLoop(to, ns); err != nil {
			return err
		}
		fmt.Println(medianMicros(ns))
		return nil
	},
}

// medianMicros is the median of nanoseconds, in microseconds.
func medianMicros(ns []int64) float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e3
	}
	return measure.Median(out)
}

// sharedSetup makes queue pairs on one protection domain and completion queue,
// as the C loop does.
func sharedSetup() func(*verbs.CMSetup) error {
	type shared struct {
		pd *verbs.PD
		cq *verbs.CQ
	}
	var once sync.Once
	var s shared
	var err error
	return func(c *verbs.CMSetup) error {
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
	m, err := verbs.OpenCM(verbs.CMConfig{})
	if err != nil {
		return err
	}
	ns := make([]int64, connections)
	cfg := verbs.DialConfig{ConnConfig: verbs.ConnConfig{Setup: sharedSetup()}}
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
	fmt.Println(medianMicros(ns))
	return nil
}

// streamBandwidth compares 64 KiB writes to a stream with raw WRITEs of that
// size on a queue pair that was connected in the same way.
func streamBandwidth() benchmark {
	const size, count = 64 << 10, 300
	rig := sync.OnceValues(newStreamRig)
	return benchmark{
		name: "stream_bw_64KiB", unit: "MiB/s", baseline: "raw WRITE", target: measure.AtLeast(0.8),
		clocks: []string{"instructions", "wall"},
		ours: func(context.Context) (float64, error) {
			r, err := rig()
			if err != nil {
				return 0, err
			}
			return r.stream(size, count)
		},
		base: func(ctx context.Context) (float64, error) {
			r, err := rig()
			if err != nil {
				return 0, err
			}
			return r.writes(ctx, size, count)
		},
	}
}

// streamRig is a stream, and beside it a queue pair to the same peer.
type streamRig struct {
	client, server net.Conn
	raw            *rig
}

func newStreamRig() (*streamRig, error) {
	_, s, err := endpoints()
	if err != nil {
		return nil, err
	}
	m, err := verbs.OpenCM(verbs.CMConfig{})
	if err != nil {
		return nil, err
	}
	l, err := verbs.StreamListen(m, netip.AddrPortFrom(s.Addr, 0).String(), verbs.StreamConfig{})
	if err != nil {
		return nil, err
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	client, err := verbs.StreamDial(context.Background(), m, l.Addr().String(), verbs.StreamConfig{})
	if err != nil {
		return nil, err
	}
	raw, err := newRigWith(1<<20, verbs.CQConfig{})
	return &streamRig{client, <-accepted, raw}, err
}

// stream answers MiB/s from the first write until the last byte was read.
func (r *streamRig) stream(size, count int) (float64, error) {
	read := make(chan error, 1)
	start := time.Now()
	go func() {
		b := make([]byte, size)
		for left := size * count; left > 0; {
			n, err := r.server.Read(b)
			if err != nil {
				read <- err
				return
			}
			left -= n
		}
		read <- nil
	}()
	b := make([]byte, size)
	for range count {
		if _, err := r.client.Write(b); err != nil {
			return 0, err
		}
	}
	err := <-read
	return float64(size*count) / (1 << 20) / time.Since(start).Seconds(), err
}

// writes keeps 16 WRITEs outstanding, as many as the stream's ring holds.
func (r *streamRig) writes(ctx context.Context, size, count int) (float64, error) {
	const depth = 16
	g := r.raw
	wcs := make([]verbs.WC, depth)
	start := time.Now()
	posted, done := 0, 0
	for done < count {
		for posted < count && posted-done < depth {
			i := posted % depth
			g.batch.Write(uint64(posted), verbs.Signaled, g.peer.Region().At(uint64(i*size)), g.mr.SGE(i*size, size))
			if _, err := g.batch.Post(); err != nil {
				return 0, err
			}
			posted++
		}
		n, err := g.cq.Wait(ctx, wcs)
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, fmt.Errorf("raw WRITE: %w", err)
			}
		}
		done += n
	}
	return float64(size*count) / (1 << 20) / time.Since(start).Seconds(), nil
}

// maskedCAS compares an emulated masked compare and swap, which nobody
// interferes with, with one CMP_SWAP on the same queue pair.
func maskedCAS() benchmark {
	const block = 200
	r := sync.OnceValues(func() (*rig, error) { return newRigWith(4096, verbs.CQConfig{PollOnly: true}) })
	return benchmark{
		name: "masked_cas_lat", unit: "us", baseline: "one CMP_SWAP", target: measure.AtMost(2.1),
		clocks: []string{"instructions"},
		ours: func(ctx context.Context) (float64, error) {
			g, err := r()
			if err != nil {
				return 0, err
			}
			m, err := verbs.NewMasked(g.qp, g.mr, 0, verbs.MaskedConfig{})
			if err != nil {
				return 0, err
			}
			at := g.peer.Region().At(0)
			i := uint64(0)
			return timed(block, func() error {
				i++
				_, err := m.CmpSwap(ctx, at, verbs.MaskedCmpSwap{Swap: i, SwapMask: 0xffff})
				return err
			})
		},
		base: func(context.Context) (float64, error) {
			g, err := r()
			if err != nil {
				return 0, err
			}
			at, local := g.peer.Region().At(8), g.mr.SGE(8, 8)
			var wcs [1]verbs.WC
			i := uint64(0)
			return timed(block, func() error {
				g.batch.CmpSwap(i, verbs.Signaled, at, i, i+1, local)
				i++
				return g.do(&wcs)
			})
		},
	}
}

// timed answers the median time of n calls in microseconds.
func timed(n int, f func() error) (float64, error) {
	ns := make([]int64, n)
	var rest verbs.Rest
	start, before := time.Now(), time.Duration(0)
	for i := range ns {
		rest.At(before)
		if err := f(); err != nil {
			return 0, err
		}
		after := time.Since(start)
		ns[i] = int64(after - before)
		before = after
	}
	return medianMicros(ns), nil
}
