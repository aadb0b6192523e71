package lockoffload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// killedLease is long beside what a busy machine delays the server's watch by.
const (
	killedLease = time.Second
	kills       = 2
)

// holderKilled is the time from the SIGKILL to a process that holds a lock until
// another client has the lock, in leases: the longest of a pass. The process dies
// at a random time after a heartbeat, and its queue pair with it; nothing tells
// the target.
func holderKilled() harness.Benchmark {
	f := harness.Figure{Name: "holder_killed_recovery", Unit: "leases", Target: measure.AtMost(3)}
	return harness.Plain(f, harness.Both, harness.One(func(ctx context.Context) (float64, error) {
		t, err := newTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 4}, killedLease)
		if err != nil {
			return 0, err
		}
		defer t.srv.Close()
		other, err := t.newClient()
		if err != nil {
			return 0, err
		}
		defer other.Close()
		longest := 0.0
		for range kills {
			took, err := killHolder(ctx, t, other)
			if err != nil {
				return 0, err
			}
			longest = max(longest, took.Seconds()/killedLease.Seconds())
		}
		return longest, nil
	}))
}

// killHolder has a process take the lock, kills it, and answers how long the lock
// was out of reach after that.
func killHolder(ctx context.Context, t *target, other *lockoffload.Client) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = l.(*net.TCPListener).SetDeadline(end)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var said bytes.Buffer
	holder := exec.CommandContext(ctx, self, "-role", "lock-holder", "-at", l.Addr().String())
	holder.Stdout, holder.Stderr = &said, &said
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	killed := make(chan error, 1)
	go func() { killed <- holder.Wait() }()
	defer func() { holder.Process.Kill(); l.Close() }()
	if err := admitHolder(ctx, t, l); err != nil {
		holder.Process.Kill()
		return 0, fmt.Errorf("holder: %w: %w: %s", err, <-killed, rig.Tail(said.Bytes()))
	}
	time.Sleep(killedLease + rand.N(killedLease/3))
	if err := holder.Process.Kill(); err != nil {
		return 0, err
	}
	start := time.Now()
	h, _, err := other.Lock(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("after the holder's end: %w", err)
	}
	took := time.Since(start)
	var died *exec.ExitError
	if err := <-killed; !errors.As(err, &died) || died.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return 0, fmt.Errorf("the holder was to be killed, and ended with %v: %s", err, rig.Tail(said.Bytes()))
	}
	return took, h.Unlock(ctx)
}

// admitHolder returns when the process has the lock.
func admitHolder(ctx context.Context, t *target, l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	place, err := t.srv.Admit(nil)
	if err != nil {
		return err
	}
	local, err := place.Endpoint()
	if err != nil {
		return err
	}
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return err
	}
	if err := place.Connect(remote); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// holdLock takes the lock, says so and holds it until it is killed.
func holdLock(ctx context.Context, at string) error {
	e, _, err := rig.Endpoints()
	if err != nil {
		return err
	}
	h, err := rig.NewHost(e)
	if err != nil {
		return err
	}
	cq, err := h.PD.Device().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return err
	}
	qp, err := h.PD.CreateQP(verbs.QPConfig{SendCQ: cq, GID: h.GID})
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return err
	}
	if err := qp.Connect(remote, verbs.ConnectConfig{}); err != nil {
		return err
	}
	var in lockoffload.Invite
	if err := in.UnmarshalBinary(remote.Data); err != nil {
		return err
	}
	c, err := lockoffload.NewClient(lockoffload.Config{PD: h.PD, QP: qp, CQ: cq, Invite: in})
	if err != nil {
		return err
	}
	if _, _, err := c.Lock(ctx, 0); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
