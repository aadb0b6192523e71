package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/dc"
)

func init() {
	roles["dc-targets"] = serveTargets
	roles["dc-fresh"] = attachRole((*attachRig).fresh)
	roles["dc-switch"] = attachRole((*attachRig).change)
	roles["dc-resume"] = attachRole((*attachRig).resume)
}

// attaching compares three ways to reach a target that has no queue pair with a
// connection by librdmacm: a new session on a context that is ready; the same
// when the only context serves another target, whose session is parked; and a
// parked session that is taken up again. Each side is a process of its own, with
// the runtime's monitor kept calm, as in conn_setup.
func attaching() []benchmark {
	const calm = "GODEBUG=schedtrace=1000000000"
	row := func(name, role string, target *measure.Target) benchmark {
		return benchmark{name: name, unit: "us", baseline: "connection by librdmacm", target: target,
			clocks: []string{"instructions"}, base: connectBy("conn-server", "conn-c", calm), ours: connectBy("dc-targets", role, calm, "GOMAXPROCS=1")}
	}
	return []benchmark{
		row("attach_p50", "dc-fresh", measure.AtMost(0.25)),
		row("attach_switch_p50", "dc-switch", nil),
		row("attach_resume_p50", "dc-resume", nil),
	}
}

// serveTargets makes two targets and tells their addresses to whom asks at a TCP
// address.
func serveTargets(ctx context.Context, at string) error {
	_, s, err := endpoints()
	if err != nil {
		return err
	}
	h, err := newDCHost(s)
	if err != nil {
		return err
	}
	var b []byte
	for range 2 {
		t, err := dc.NewTarget(dc.TargetConfig{PD: h.pd, GID: h.gid})
		if err != nil {
			return err
		}
		if b, err = t.Address().AppendBinary(b); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		c.Close()
	}
}

// attachRig is a serial initiator and two targets.
type attachRig struct {
	i     *dc.Initiator
	peers [2]*dc.Peer
}

// attachRole prints what one way of attaching takes.
func attachRole(f func(*attachRig, context.Context) (float64, error)) func(context.Context, string) error {
	return func(ctx context.Context, at string) error {
		r, err := newAttachRig(at)
		if err != nil {
			return err
		}
		v, err := f(r, ctx)
		if err == nil {
			fmt.Println(v)
		}
		return err
	}
}

func newAttachRig(at string) (*attachRig, error) {
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("targets: Couldn't connect: %w", err) // pairOf tries again
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	e, _, err := endpoints()
	if err != nil {
		return nil, err
	}
	h, err := newDCHost(e)
	if err != nil {
		return nil, err
	}
	r := &attachRig{}
	if r.i, err = dc.NewInitiator(dc.InitiatorConfig{PD: h.pd, GID: h.gid, Contexts: 1, Parking: dc.ParkAlways}); err != nil {
		return nil, err
	}
	for k := range r.peers {
		var a dc.Address
		half := len(b) / 2
		if err := a.UnmarshalBinary(b[k*half : (k+1)*half]); err != nil {
			return nil, err
		}
		if r.peers[k], err = r.i.Resolve(a, 0); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// repeat answers the median time of Attach to the first target, after what each
// turn prepares.
func (r *attachRig) repeat(ctx context.Context, prepare func() error) (float64, error) {
	ns := make([]int64, connections)
	for k := range ns {
		if err := prepare(); err != nil {
			return 0, err
		}
		// What this left to do in the background is over.
		time.Sleep(5 * time.Millisecond)
		start := time.Now()
		if err := r.i.Attach(ctx, r.peers[0]); err != nil {
			return 0, err
		}
		ns[k] = int64(time.Since(start))
	}
	return medianMicros(ns), nil
}

func (r *attachRig) fresh(ctx context.Context) (float64, error) {
	return r.repeat(ctx, func() error { return r.i.Detach(r.peers[0]) })
}

func (r *attachRig) change(ctx context.Context) (float64, error) {
	return r.repeat(ctx, func() error { return errors.Join(r.i.Detach(r.peers[0]), r.i.Attach(ctx, r.peers[1])) })
}

func (r *attachRig) resume(ctx context.Context) (float64, error) {
	if err := r.i.Attach(ctx, r.peers[0]); err != nil {
		return 0, err
	}
	before := r.i.Stats().Resumes
	v, err := r.repeat(ctx, func() error { return r.i.Attach(ctx, r.peers[1]) })
	if n := r.i.Stats().Resumes - before; err == nil && n < connections {
		err = fmt.Errorf("%d of %d sessions were taken up again", n, connections)
	}
	return v, err
}
