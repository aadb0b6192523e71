//go:build linux

package lockoffload_test

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// Tests that wait for leases to run out do it together, after all others, however few
// CPUs there are.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.(flag.Getter).Get().(int) < 16 {
		_ = f.Value.Set("16") // which is a number
	}
	os.Exit(m.Run())
}

type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	gid verbs.GIDEntry

	// made are queue pairs and their queues, which close behind all that is made
	// on them, also later, by clients that connect again.
	made *made
}

type made struct {
	mu  sync.Mutex
	all []io.Closer
}

func (m *made) add(c ...io.Closer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, c...)
}

func (m *made) close(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Backward(m.all) {
		require.NoError(t, c.Close())
	}
}

// wire has the devices at its ends. Simulated ones may stand for them.
var wire, simulated = [2]string{"rxe0", "rxe1"}, false

func requireWire(t *testing.T) {
	t.Helper()
	if !simulated {
		lab.RequireTopology(t, "wire")
	}
}

func open(t *testing.T, name string) end {
	t.Helper()
	d, err := verbs.Open(name, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
	require.NoError(t, err)
	e := end{d, pd, gid, new(made)}
	t.Cleanup(func() { e.made.close(t) })
	return e
}

func (e end) qp(t *testing.T) (*verbs.QP, *verbs.CQ) {
	t.Helper()
	cq, err := e.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	e.made.add(cq)
	qp, err := e.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: e.gid})
	require.NoError(t, err)
	e.made.add(qp)
	return qp, cq
}

// rig is a target at one end of the wire, and initiators at the other.
type rig struct {
	t     *testing.T
	a, b  end
	reg   *lockoffload.Region
	srv   *lockoffload.Server
	lease time.Duration
	way   verbs.ConnectConfig // of the clients' queue pairs
}

func newRig(t *testing.T, l lockoffload.Layout, lease time.Duration) *rig {
	t.Helper()
	requireWire(t)
	r := &rig{t: t, a: open(t, wire[0]), b: open(t, wire[1]), lease: lease}
	mr, err := r.b.pd.AllocMR(l.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	r.reg, err = lockoffload.NewRegion(mr, l)
	require.NoError(t, err)
	r.reg.CountFromZero()
	r.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: lease, Grace: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.srv.Close()) })
	return r
}

// admit makes a connected queue pair with a place at the target.
func (r *rig) admit() (*verbs.QP, *verbs.CQ, *lockoffload.Session, lockoffload.SessionInfo) {
	r.t.Helper()
	qp, cq := r.a.qp(r.t)
	s, in := r.connect(qp)
	return qp, cq, s, in
}

// connect gives a queue pair a place at the target.
func (r *rig) connect(qp *verbs.QP) (*lockoffload.Session, lockoffload.SessionInfo) {
	r.t.Helper()
	ea, err := qp.Endpoint()
	require.NoError(r.t, err)
	s, err := r.srv.Admit(nil)
	require.NoError(r.t, err)
	eb, err := s.Endpoint()
	require.NoError(r.t, err)
	require.NoError(r.t, s.Connect(ea))
	require.NoError(r.t, qp.Connect(eb, r.way))
	var in lockoffload.SessionInfo
	require.NoError(r.t, in.UnmarshalBinary(eb.Data))
	return s, in
}

func (r *rig) client(retry lockoffload.Retry) (*lockoffload.Client, *lockoffload.Session) {
	r.t.Helper()
	c, s, _ := r.clientOn(retry)
	return c, s
}

// clientOn returns the client's queue pair too.
func (r *rig) clientOn(retry lockoffload.Retry) (*lockoffload.Client, *lockoffload.Session, *verbs.QP) {
	r.t.Helper()
	qp, cq, s, in := r.admit()
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in, Retry: retry})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	return c, s, qp
}

func (r *rig) clients(n int, retry lockoffload.Retry) []*lockoffload.Client {
	out := make([]*lockoffload.Client, n)
	for i := range out {
		out[i], _ = r.client(retry)
	}
	return out
}

// stuck is when a test is taken for one that hangs. Nothing else depends on it,
// and machines may be slow.
const stuck = 5 * time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// readIn repeats a read until it is carried out in the form that it has where no READ is
// held up. A client repeats a READ that was late, under the lock in the end: only a machine
// that is slow at the moment excuses that, and another holder of the lock. readIn returns
// how often the read was excused.
func readIn(t *testing.T, ctx context.Context, form lockoffload.Protocol, read func(context.Context) (lockoffload.Result, error)) (excused int) {
	t.Helper()
	for ; ; excused++ {
		brief, cancel := context.WithTimeout(ctx, 2*time.Second)
		began := time.Now()
		res, err := read(brief)
		took := time.Since(began)
		cancel()
		if err == nil && res.Protocol == form {
			return excused
		}
		require.Greater(t, took, machine.ReadTime(0), "%v, %v", res.Protocol, err)
		require.Less(t, excused, 20, "%v, %v", res.Protocol, err)
	}
}
