package srd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/srd"
)

const (
	rounds     = 500
	warmRounds = 100
	small      = 64
	// calming is how long the Go runtime's monitor needs to become slow again: while
	// it looks every 20 us it takes the only processor away in each call into C that
	// is longer, and stays as it is.
	calming = 50 * time.Millisecond
)

// player sends one message and receives one, in turn.
type player struct {
	ep   *srd.Endpoint
	q    *srd.SendQueue
	rs   [1]srd.Request
	ms   [1]srd.Message
	cs   [4]srd.Completion
	sent int
}

func newPlayer(ep *srd.Endpoint) (*player, error) {
	q, err := ep.NewQueue(srd.QueueConfig{})
	return &player{ep: ep, q: q, rs: [1]srd.Request{{Data: [][]byte{make([]byte, small)}}}}, err
}

func (p *player) send(to srd.Addr) error {
	p.rs[0].To = to
	_, err := p.q.Post(p.rs[:]...)
	p.sent++
	return err
}

// receive takes one message, and the statuses of the messages before it: the response
// came with it.
func (p *player) receive(ctx context.Context) (from srd.Addr, err error) {
	n, err := p.ep.Receive(ctx, p.ms[:])
	if err != nil {
		return from, err
	}
	from = p.ms[0].From
	p.ep.Release(p.ms[:n]...)
	return from, nil
}

func (p *player) reap(ctx context.Context, all bool) error {
	for p.sent > len(p.cs) || all && p.sent > 0 {
		n, err := p.q.Wait(ctx, p.cs[:])
		if err != nil {
			return err
		}
		for _, c := range p.cs[:n] {
			if err := c.Status.Err(); err != nil {
				return err
			}
		}
		p.sent -= n
	}
	return nil
}

// echo replies to each message by one.
func echo(ctx context.Context, ep *srd.Endpoint) error {
	p, err := newPlayer(ep)
	for err == nil {
		var from srd.Addr
		if from, err = p.receive(ctx); err == nil {
			err = p.send(from)
		}
		if err == nil {
			err = p.reap(ctx, false)
		}
	}
	return err
}

// timer returns how long one of n calls takes, in microseconds.
type timer func(n int, f func() error) (float64, error)

// pingPong returns half of so many round trips in microseconds. With [rig.Timed] it is the median, as perftest's.
func pingPong(rounds int, timed timer) func(context.Context, *srd.Endpoint, srd.Addr) (float64, error) {
	return func(ctx context.Context, ep *srd.Endpoint, to srd.Addr) (float64, error) {
		p, err := newPlayer(ep)
		if err != nil {
			return 0, err
		}
		turn := func() error {
			if err := p.send(to); err != nil {
				return err
			}
			if _, err := p.receive(ctx); err != nil {
				return err
			}
			return p.reap(ctx, false)
		}
		if _, err := rig.Timed(warmRounds, turn); err != nil {
			return 0, err
		}
		time.Sleep(calming)
		us, err := timed(rounds, turn)
		return us / 2, err
	}
}

// fabric is libfabric's ping-pong over its reliable datagrams, the same half. It polls, as
// perftest does, and needs the same environment on one CPU.
func fabric(env ...string) harness.Pass {
	return one(func(ctx context.Context) (float64, error) {
		if err := rig.Warm("fi_pingpong"); err != nil {
			return 0, err
		}
		c, s, err := rig.Endpoints()
		if err != nil {
			return 0, err
		}
		index, err := rig.GIDIndex(s.Device, s.Addr)
		if err != nil {
			return 0, err
		}
		port := rig.NextPort()
		args := func(more ...string) []string {
			return append([]string{"fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-S", "64", "-I", "500"}, more...)
		}
		out, err := rig.Processes(ctx, args("-d", s.Device+"-dgram", "-B", port), args("-d", c.Device+"-dgram", "-P", port, s.Addr.String()), append([]string{"FI_VERBS_GID_IDX=" + index}, env...)...)
		if err != nil {
			return 0, err
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fields := strings.Fields(lines[len(lines)-1])
		if len(fields) < 7 { // bytes, sent, acknowledged, total, time, MB/s, usec/xfer, Mxfers/s
			return 0, fmt.Errorf("fi_pingpong: %s", rig.Tail(out))
		}
		return strconv.ParseFloat(fields[len(fields)-2], 64)
	})
}
