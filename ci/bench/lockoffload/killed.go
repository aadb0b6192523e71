package lockoffload

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/internal/testproc"
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
	return recovery("holder_killed_recovery", lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 4}, 1, harness.Both)
}

// manyKilled is that with a million slots and the clients of one host, each of which
// holds a lock: until the other client has had the locks of all.
func manyKilled() harness.Benchmark {
	const clients = 16
	return recovery("recovery_1M_slots", lockoffload.Layout{Slots: 1_000_000, Size: 8, Clients: clients + 1}, clients, instructions)
}

func recovery(name string, l lockoffload.Layout, clients int, judged []string) harness.Benchmark {
	f := harness.Figure{Name: name, Unit: "leases", Target: measure.AtMost(3)}
	return harness.Plain(f, judged, harness.One(func(ctx context.Context) (v float64, err error) {
		t, err := newTarget(l, killedLease)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, t.close()) }()
		other, err := t.newClient()
		if err != nil {
			return 0, err
		}
		defer other.Close()
		longest := 0.0
		for range kills {
			took, err := killHolders(ctx, t, other, clients)
			if err != nil {
				return 0, err
			}
			longest = max(longest, took.Seconds()/killedLease.Seconds())
		}
		return longest, nil
	}))
}

// killHolders has the clients of a process take a lock each, kills it, and returns for how
// long one of the locks was out of reach after that.
func killHolders(ctx context.Context, t *target, other *lockoffload.Client, clients int) (time.Duration, error) {
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
	killed, err := testproc.Start(holder)
	if err != nil {
		return 0, err
	}
	defer func() { holder.Process.Kill(); l.Close() }()
	for i := range clients {
		if err := admitHolder(ctx, t, l, lockOf(i, clients, t.layout), i == clients-1); err != nil {
			holder.Process.Kill()
			return 0, fmt.Errorf("holder: %w: %w: %s", err, <-killed, rig.Tail(said.Bytes()))
		}
	}
	time.Sleep(killedLease + rand.N(killedLease/3))
	if err := holder.Process.Kill(); err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range clients {
		h, _, err := other.Lock(ctx, lockOf(i, clients, t.layout), lockoffload.LockOptions{})
		if err != nil {
			return 0, fmt.Errorf("after the holder's end: %w", err)
		}
		if err := h.Unlock(ctx); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	var died *exec.ExitError
	if err := <-killed; !errors.As(err, &died) || died.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return 0, fmt.Errorf("the holder was to be killed, and ended with %v: %s", err, rig.Tail(said.Bytes()))
	}
	return took, nil
}

// lockOf returns the slot that one of some clients takes.
func lockOf(i, clients int, l lockoffload.Layout) int { return l.Slots / clients * i }

// admitHolder returns when a client of the process has the lock of a slot.
func admitHolder(ctx context.Context, t *target, l net.Listener, slot int, last bool) error {
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
	if err := binary.Write(conn, binary.LittleEndian, order{uint32(slot), last}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// order is what a client of the process is to lock, and whether it is the last one.
type order struct {
	Slot uint32
	Last bool
}

// holdLocks takes locks, each by a client of its own, says so and holds them until it is
// killed.
func holdLocks(ctx context.Context, at string) error {
	e, _, err := rig.Endpoints()
	if err != nil {
		return err
	}
	h, err := rig.NewHost(e)
	if err != nil {
		return err
	}
	for last := false; !last; {
		if last, err = holdLock(ctx, h, at); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func holdLock(ctx context.Context, h *rig.Host, at string) (last bool, err error) {
	cq, err := h.PD.Device().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return false, err
	}
	qp, err := h.PD.CreateQP(verbs.QPConfig{SendCQ: cq, GID: h.GID})
	if err != nil {
		return false, err
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	local, err := qp.Endpoint()
	if err != nil {
		return false, err
	}
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return false, err
	}
	if err := qp.Connect(remote, verbs.ConnectConfig{}); err != nil {
		return false, err
	}
	var o order
	if err := binary.Read(conn, binary.LittleEndian, &o); err != nil {
		return false, err
	}
	var in lockoffload.SessionInfo
	if err := in.UnmarshalBinary(remote.Data); err != nil {
		return false, err
	}
	c, err := lockoffload.NewClient(lockoffload.Config{PD: h.PD, QP: qp, CQ: cq, Session: in})
	if err != nil {
		return false, err
	}
	if _, _, err := c.Lock(ctx, int(o.Slot), lockoffload.LockOptions{}); err != nil {
		return false, err
	}
	_, err = conn.Write([]byte{1})
	return o.Last, err
}
