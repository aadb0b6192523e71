package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/verbs"
)

// connSetup is the time until a connection stands, through our binding of
// librdmacm and through librdmacm in C, to one listener.
func connSetup() benchmark {
	const block = 40
	listener := sync.OnceValues(connListener)
	return benchmark{
		name: "conn_setup", unit: "us", baseline: "librdmacm in C", target: measure.AtMost(1.1),
		clocks: []string{"instructions"},
		ours: func(ctx context.Context) (float64, error) {
			l, err := listener()
			if err != nil {
				return 0, err
			}
			return l.goConnects(ctx, block)
		},
		base: func(context.Context) (float64, error) {
			l, err := listener()
			if err != nil {
				return 0, err
			}
			ns := make([]int64, block)
			if err := standin.ConnectLoop(l.addr, ns); err != nil {
				return 0, err
			}
			return medianMicros(ns), nil
		},
	}
}

// medianMicros is the median of nanoseconds, in microseconds.
func medianMicros(ns []int64) float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v) / 1e3
	}
	return measure.Median(out)
}

// connRig accepts connections and closes them when the peer does.
type connRig struct {
	addr   netip.AddrPort
	client *verbs.CM
	pd     *verbs.PD // of the client
	cq     *verbs.CQ
}

func connListener() (*connRig, error) {
	_, s, err := endpoints()
	if err != nil {
		return nil, err
	}
	m, err := verbs.OpenCM(verbs.CMConfig{})
	if err != nil {
		return nil, err
	}
	l, err := m.Listen(netip.AddrPortFrom(s.Addr, 0).String(), verbs.ListenConfig{})
	if err != nil {
		return nil, err
	}
	dev, err := m.Device(s.Device)
	if err != nil {
		return nil, err
	}
	setup, _, err := sharedSetup(dev)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			req, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				c, err := req.Accept(context.Background(), verbs.ConnConfig{Setup: setup})
				if err != nil {
					return
				}
				<-c.Done()
				c.Close()
				c.QP().Close()
			}()
		}
	}()
	client, err := verbs.OpenCM(verbs.CMConfig{})
	return &connRig{addr: l.Addr(), client: client}, err
}

// sharedSetup makes queue pairs on one protection domain and completion queue,
// as the C loop does.
func sharedSetup(dev *verbs.Device) (func(*verbs.CMSetup) error, *verbs.PD, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, nil, err
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{Depth: 64, PollOnly: true})
	return func(s *verbs.CMSetup) (err error) {
		s.QP, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: s.GID, MaxSendWR: 16, MaxRecvWR: 16, KeepReset: true})
		return err
	}, pd, err
}

func (l *connRig) goConnects(ctx context.Context, n int) (float64, error) {
	ns := make([]int64, n)
	var setup func(*verbs.CMSetup) error
	cfg := verbs.DialConfig{ConnConfig: verbs.ConnConfig{Setup: func(s *verbs.CMSetup) (err error) {
		if setup == nil {
			if setup, _, err = sharedSetup(s.Device); err != nil {
				return err
			}
		}
		return setup(s)
	}}}
	to := l.addr.String()
	for i := range ns {
		start := time.Now()
		c, err := l.client.Dial(ctx, to, cfg)
		if err != nil {
			return 0, err
		}
		ns[i] = int64(time.Since(start))
		if err := errors.Join(c.Disconnect(ctx), c.Close(), c.QP().Close()); err != nil {
			return 0, err
		}
	}
	return medianMicros(ns), nil
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
				_, got, err := g.batch.PostPoll(g.cq, wcs[:], 1000)
				for got == 0 && err == nil {
					got, err = g.cq.PollSpin(wcs[:], 1000)
				}
				if err != nil {
					return err
				}
				return wcs[0].Err()
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
