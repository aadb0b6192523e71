package dc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
)

// attaching compares four ways to reach a target that has no queue pair: on a
// context that is ready, the session that was kept when the target was left (attach),
// and a new one (attach_cold); a new session when the only context serves another
// target (attach_switch); and a kept session that is taken up again then
// (attach_resume). Beside them two ways to connect an RC queue pair: one
// that was made ahead, by one message each way on a TCP connection that is open
// (rows without an addition), and a new one by librdmacm. All are processes of
// their own with the runtime's monitor kept calm, and pause before each attach or
// connection.
func attaching() harness.Benchmark {
	const open, cm = "RC queue pair made ahead, over an open TCP connection", "new connection by librdmacm, in C"
	attach := func(name, role string) harness.Side {
		return harness.Side{Name: name, Run: rig.ByRoles("dc-targets", role, rig.Calm, "GOMAXPROCS=1")}
	}
	b := harness.Benchmark{Name: "attach", Judged: instructions, Sides: []harness.Side{
		attach("attach", "dc-kept"), attach("attach_cold", "dc-cold"), attach("attach_switch", "dc-switch"), attach("attach_resume", "dc-resume"),
		{Name: open, Run: rig.ByRoles("dc-open-server", "dc-open", rig.Calm, "GOMAXPROCS=1")},
		{Name: cm, Run: rig.ByRoles("dc-cm-server", "dc-cm", rig.Calm)},
	}}
	for _, of := range []string{"attach", "attach_cold", "attach_switch", "attach_resume"} {
		b.Figures = append(b.Figures,
			harness.Figure{Name: of + "_p50", Unit: "us", Of: of, Baseline: open},
			harness.Figure{Name: of + "_p50_librdmacm", Unit: "us", Of: of, Baseline: cm})
	}
	b.Figures[0].Target = measure.AtMost(0.25)
	return b
}

// attachPause comes before each attach or connection: what the last one left to
// do in the background is over then.
const attachPause = 5 * time.Millisecond

// connections is how many a pass makes.
const connections = 40

var attachRoles = map[string]rig.Role{
	"dc-targets": serveTargets,
	"dc-kept":    attachRole(false, (*attachRig).kept),
	"dc-cold":    attachRole(true, (*attachRig).cold),
	"dc-switch":  attachRole(true, (*attachRig).change),
	"dc-resume":  attachRole(false, (*attachRig).resume),
}

// serveTargets makes two targets and sends their addresses to clients that connect to a TCP
// address.
func serveTargets(ctx context.Context, at string) error {
	_, s, err := rig.Endpoints()
	if err != nil {
		return err
	}
	h, err := rig.NewHost(s)
	if err != nil {
		return err
	}
	var b []byte
	for range 2 {
		t, err := dc.NewTarget(dc.TargetConfig{PD: h.PD, GID: h.GID})
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
	host  *rig.Host
	i     *dc.Initiator
	peers [2]*dc.Peer
}

// attachRole prints what one way of attaching takes.
func attachRole(closes bool, f func(*attachRig, context.Context) (float64, error)) func(context.Context, string) error {
	return func(ctx context.Context, at string) error {
		r, err := newAttachRig(at, closes)
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

func newAttachRig(at string, closes bool) (*attachRig, error) {
	conn, err := rig.DialServer(at)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	e, _, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	h, err := rig.NewHost(e)
	if err != nil {
		return nil, err
	}
	r := &attachRig{host: h}
	if r.i, err = dc.NewInitiator(dc.InitiatorConfig{PD: h.PD, GID: h.GID, Contexts: 1, CloseSessions: closes}); err != nil {
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

// repeat returns the median time of Attach to the first target, after what each
// turn prepares.
func (r *attachRig) repeat(ctx context.Context, prepare func() error) (float64, error) {
	ns := make([]int64, connections)
	for k := range ns {
		if err := prepare(); err != nil {
			return 0, err
		}
		time.Sleep(attachPause)
		start := time.Now()
		if err := r.i.Attach(ctx, r.peers[0]); err != nil {
			return 0, err
		}
		ns[k] = int64(time.Since(start))
	}
	return rig.MedianMicros(ns), nil
}

// kept leaves the target and comes back to it.
func (r *attachRig) kept(ctx context.Context) (float64, error) {
	if err := r.i.Attach(ctx, r.peers[0]); err != nil {
		return 0, err
	}
	v, err := r.cold(ctx)
	if n := r.i.Stats().Resumes; err == nil && n < connections {
		err = fmt.Errorf("%d of %d sessions had been kept", n, connections)
	}
	return v, err
}

func (r *attachRig) cold(ctx context.Context) (float64, error) {
	return r.repeat(ctx, func() error { return r.i.Detach(r.peers[0]) })
}

func (r *attachRig) change(ctx context.Context) (float64, error) {
	return r.repeat(ctx, func() error { return errors.Join(r.i.Detach(r.peers[0]), r.i.Attach(ctx, r.peers[1])) })
}

// resume comes back from a target on this host: after one on the same host a session is
// not taken up again within a second.
func (r *attachRig) resume(ctx context.Context) (float64, error) {
	t, err := dc.NewTarget(dc.TargetConfig{PD: r.host.PD, GID: r.host.GID})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	other, err := r.i.Resolve(t.Address(), 0)
	if err != nil {
		return 0, err
	}
	if err := r.i.Attach(ctx, r.peers[0]); err != nil {
		return 0, err
	}
	before := r.i.Stats().Resumes
	v, err := r.repeat(ctx, func() error { return r.i.Attach(ctx, other) })
	if n := r.i.Stats().Resumes - before; err == nil && n < connections {
		err = fmt.Errorf("%d of %d sessions were taken up again", n, connections)
	}
	return v, err
}
