package verbs

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// Both sides have as many WRITEs outstanding as a stream's buffers hold, ask for a
// completion as often, and wait for it by events.
const (
	streamSize   = 64 << 10
	streamCount  = 160
	streamBuffer = 1 << 20
	streamDepth  = streamBuffer / streamSize
	streamSignal = streamDepth / 8 // a stream asks for each eighth of its buffer
)

// streamBandwidth compares 64 KiB writes to a stream with raw WRITEs of that size
// on a queue pair.
func streamBandwidth() harness.Benchmark {
	r := rig.Lazy(newStreamRig)
	f := harness.Figure{Name: "stream_bw_64KiB", Unit: "MiB/s", Target: measure.AtLeast(0.8)}
	return harness.Compare(f, harness.Both,
		r.Pass(func(r *streamRig, _ context.Context) (float64, error) { return r.stream(streamSize, streamCount) }),
		harness.Side{Name: "raw WRITE, 16 outstanding", Run: r.Pass((*streamRig).writes)})
}

// streamRig is a stream, and beside it a queue pair to the same peer.
type streamRig struct {
	client, server net.Conn
	raw            *rig.RC
}

func newStreamRig() (*streamRig, error) {
	_, s, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	m, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return nil, err
	}
	l, err := stream.Listen(m, netip.AddrPortFrom(s.Addr, 0).String(), stream.Config{Buffer: streamBuffer})
	if err != nil {
		return nil, err
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	client, err := stream.Dial(context.Background(), m, l.Addr().String(), stream.Config{Buffer: streamBuffer})
	if err != nil {
		return nil, err
	}
	raw, err := rig.NewRCWith(1<<20, verbs.CQConfig{}, verbs.ConnectConfig{})
	return &streamRig{client, <-accepted, raw}, err
}

// stream returns MiB/s from the first write until the last byte was read.
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

// writes returns MiB/s of raw WRITEs.
func (r *streamRig) writes(ctx context.Context) (float64, error) {
	g := r.raw
	wcs := make([]verbs.WC, streamDepth)
	start := time.Now()
	posted, done := 0, 0
	for done < streamCount {
		for posted < streamCount && posted-done < streamDepth {
			at := posted % streamDepth * streamSize
			flags := verbs.SendFlags(0)
			if posted++; posted%streamSignal == 0 {
				flags = verbs.Signaled
			}
			g.Batch.Write(uint64(posted), flags, g.Peer.Region().At(uint64(at)), g.MR.SGE(at, streamSize))
			if _, err := g.Batch.Post(); err != nil {
				return 0, err
			}
		}
		n, err := g.CQ.Wait(ctx, wcs)
		if err != nil {
			return 0, err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return 0, fmt.Errorf("raw WRITE: %w", err)
			}
			done = int(wcs[i].ID())
		}
	}
	return float64(streamSize*streamCount) / (1 << 20) / time.Since(start).Seconds(), nil
}
