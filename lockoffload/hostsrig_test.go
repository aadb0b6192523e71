//go:build linux

package lockoffload_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// Hosts talk about set-up and orders by TCP, in JSON.
const (
	targetPort = "7471"
	orderPort  = "7472"
)

var hostLayout = lockoffload.Layout{Slots: 150, Size: 64, Clients: 16, Swap: 32}

// hello asks a target for a place, or for a connection to its agent.
type hello struct {
	Agent    bool
	Client   uint64
	Endpoint []byte
}

type welcome struct {
	Endpoint []byte
	Limits   lockoffload.ChainLimits
	Err      string
}

// target is a region with its server and agent, on one host.
type target struct {
	end
	srv   *lockoffload.Server
	agent *lockoffload.Agent

	mu    sync.Mutex
	links []io.Closer
}

func openHost(t *testing.T) end { return open(t, lab.Require(t, 1)[0].Device) }

func newTarget(t *testing.T, lease time.Duration) *target {
	t.Helper()
	g := &target{end: openHost(t)}
	mr, err := g.pd.AllocMR(hostLayout.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	region, err := lockoffload.NewRegion(mr, hostLayout)
	require.NoError(t, err)
	region.CountFromZero()
	g.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: g.pd, Region: region, GID: g.gid, Lease: lease, Grace: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.srv.Close()) })
	g.agent, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: g.pd, Region: region, GID: g.gid, MaxWait: stuck})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.agent.Close()) })
	l, err := net.Listen("tcp", ":"+targetPort)
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		serving.Wait()
		for _, c := range g.links {
			require.NoError(t, c.Close())
		}
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.serve(conn)
		}
	})
	return g
}

func (g *target) serve(conn net.Conn) {
	defer conn.Close()
	var h hello
	if json.NewDecoder(conn).Decode(&h) != nil {
		return
	}
	w, err := g.welcome(h)
	if err != nil {
		w.Err = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(w) // the peer may be gone
}

func (g *target) welcome(h hello) (w welcome, err error) {
	var remote, local verbs.Endpoint
	if err := remote.UnmarshalBinary(h.Endpoint); err != nil {
		return w, err
	}
	if h.Agent {
		w.Limits = g.agent.Limits()
		qp, err := g.pd.CreateQP(g.agent.QPConfig())
		if err != nil {
			return w, err
		}
		g.mu.Lock()
		g.links = append(g.links, qp)
		g.mu.Unlock()
		if local, err = qp.Endpoint(); err == nil {
			err = errors.Join(g.agent.Attach(h.Client, qp), qp.Connect(remote, agentConnect))
		}
		if err != nil {
			return w, err
		}
	} else {
		s, err := g.srv.Admit(nil)
		if err != nil {
			return w, err
		}
		if local, err = s.Endpoint(); err == nil {
			err = s.Connect(remote)
		}
		if err != nil {
			return w, err
		}
	}
	w.Endpoint, err = local.AppendBinary(nil)
	return w, err
}

// ask exchanges endpoints with the target on a host.
func ask(ctx context.Context, host int, qp *verbs.QP, h hello) (w welcome, remote verbs.Endpoint, err error) {
	local, err := qp.Endpoint()
	if err != nil {
		return w, remote, err
	}
	if h.Endpoint, err = local.AppendBinary(nil); err != nil {
		return w, remote, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(lab.Addrs()[host].String(), targetPort))
	if err != nil {
		return w, remote, err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	if err := errors.Join(json.NewEncoder(conn).Encode(h), json.NewDecoder(conn).Decode(&w)); err != nil {
		return w, remote, err
	}
	if w.Err != "" {
		return w, remote, errors.New(w.Err)
	}
	return w, remote, remote.UnmarshalBinary(w.Endpoint)
}

// place makes a queue pair with a place at the target.
func (e end) place(t *testing.T, ctx context.Context, host int) (*verbs.QP, *verbs.CQ, lockoffload.SessionInfo) {
	t.Helper()
	qp, cq := e.qp(t)
	_, remote, err := ask(ctx, host, qp, hello{})
	require.NoError(t, err)
	require.NoError(t, qp.Connect(remote, verbs.ConnectConfig{}))
	var in lockoffload.SessionInfo
	require.NoError(t, in.UnmarshalBinary(remote.Data))
	return qp, cq, in
}

// actor makes a client of the target on a host, and a caller of its agent.
func (e end) actor(t *testing.T, ctx context.Context, host int, id uint64) *actor {
	t.Helper()
	qp, cq, in := e.place(t, ctx, host)
	c, err := lockoffload.NewClient(lockoffload.Config{PD: e.pd, QP: qp, CQ: cq, Session: in, Retry: lockoffload.Retry{Min: 2 * time.Millisecond, Max: 200 * time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	a := &actor{c: c, agent: e.caller(t, ctx, host, id), size: hostLayout.Size}
	c.UseAgent(a.agent)
	return a
}

func (e end) caller(t *testing.T, ctx context.Context, host int, id uint64) *lockoffload.Caller {
	t.Helper()
	qp, cq := e.qp(t)
	w, remote, err := ask(ctx, host, qp, hello{Agent: true, Client: id})
	require.NoError(t, err)
	require.NoError(t, qp.Connect(remote, agentConnect))
	first := true
	agent, err := lockoffload.NewCaller(ctx, lockoffload.CallerConfig{PD: e.pd, Layout: hostLayout, Limits: w.Limits, Client: id,
		Connect: func(context.Context) (*verbs.QP, *verbs.CQ, error) {
			if !first {
				return nil, nil, errors.New("the target is gone")
			}
			first = false
			return qp, cq, nil
		}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, agent.Close()) })
	return agent
}

// order is what the test has a worker on another host do.
type order struct {
	Do, Form string // "add", "die" or "chain"
	Slot, N  int
	Half     bool
}

type answer struct {
	Died, Changed bool
	Outcome       outcome
	Err           string
}

// worker is the test's end of one on another host.
type worker struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// do has the order carried out. An error says that the host is gone.
func (w *worker) do(o order) (a answer, err error) {
	if err = w.out.Encode(o); err == nil {
		err = w.in.Decode(&a)
	}
	return a, err
}

// workers has a host work with so many goroutines for the target on host 0.
func workers(t *testing.T, ctx context.Context, host, n int) []*worker {
	t.Helper()
	l, err := net.Listen("tcp", ":"+orderPort)
	require.NoError(t, err)
	defer l.Close()
	begin(t, ctx, host, "worker", fmt.Sprint(n))
	var out []*worker
	if end, ok := ctx.Deadline(); ok {
		require.NoError(t, l.(*net.TCPListener).SetDeadline(end))
	}
	for range n {
		conn, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		out = append(out, &worker{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)})
	}
	return out
}

// begin starts this program in a role on another host.
func begin(t *testing.T, ctx context.Context, host int, role, arg string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	go func() {
		r, err := lab.Host(host).Exec(ctx, "env", "GOVERBS_LOCK_ROLE="+role, "GOVERBS_LOCK_ARG="+arg, self, "-test.run=^TestHostRole$", "-test.v")
		if err == nil && r.Code != 0 {
			fmt.Fprintf(os.Stderr, "%s on host %d: exit status %d\n%s%s", role, host, r.Code, bytes.TrimSpace(r.Stdout), r.Stderr)
		}
	}()
}

// TestHostRole is what other hosts run for the tests.
func TestHostRole(t *testing.T) {
	switch os.Getenv("GOVERBS_LOCK_ROLE") {
	case "":
		t.Skip("run by tests on other hosts")
	case "target":
		newTarget(t, hostLease)
		time.Sleep(2 * stuck)
	case "worker":
		n := 0
		_, err := fmt.Sscan(os.Getenv("GOVERBS_LOCK_ARG"), &n)
		require.NoError(t, err)
		work(t, n)
	}
}

func work(t *testing.T, n int) {
	ctx := within(t, 2*stuck)
	e, id := openHost(t), uint64(time.Now().UnixNano())
	adding, dying := e.actor(t, ctx, 0, id), e.actor(t, ctx, 0, id+1)
	dying.c.UseAgent(dying.agent)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range n {
		conn, err := net.Dial("tcp", net.JoinHostPort(lab.Addrs()[0].String(), orderPort))
		require.NoError(t, err)
		wg.Go(func() {
			defer conn.Close()
			in, out := json.NewDecoder(conn), json.NewEncoder(conn)
			for {
				var o order
				var a answer
				var err error
				if in.Decode(&o) != nil {
					return
				}
				switch o.Do {
				case "add":
					a.Outcome, _, err = adding.add(ctx, o.Form, o.Slot)
				case "die":
					a.Died, a.Changed, err = dying.c.DieAfter(ctx, o.Form, o.Slot, o.N, o.Half)
				case "chain":
					_, err = adding.agent.Do(ctx, &lockoffload.Chain{Slot: o.Slot, Accesses: []lockoffload.Access{writeOf(0, "x")}})
				}
				if err != nil {
					a.Err = err.Error()
				}
				if out.Encode(a) != nil {
					return
				}
			}
		})
	}
}
