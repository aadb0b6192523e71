//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// port is a device with a GID that the tests can use: what FindGID chooses, which
// on InfiniBand and EFA is no IP address.
type port struct {
	name string
	gid  verbs.GIDEntry
}

// ports finds two ports that reach each other: those of the lab's wire, or of
// a machine that has RDMA devices of its own (one device then talks to
// itself). Without any the test is skipped, except in the lab, where they must
// be there.
func ports(t testing.TB) [2]port {
	t.Helper()
	lab.NoLeftovers(t)
	list, err := verbs.Devices()
	if err != nil {
		missing(t, "no rdma-core: %v", err)
	}
	var found []port
	for _, info := range list {
		if want := os.Getenv("RDMA_DEVICE"); want != "" && want != info.Name {
			continue
		}
		d, err := verbs.Open(info.Name, verbs.DeviceConfig{})
		require.NoError(t, err)
		p, err := d.Port(1)
		require.NoError(t, err)
		gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
		require.NoError(t, d.Close())
		if err == nil && p.State == verbs.PortActive && (gid.GID.Addr().Is4() || !lab.In()) {
			found = append(found, port{info.Name, gid})
		}
	}
	switch len(found) {
	case 0:
		missing(t, "no RDMA device with an active port and a GID: run in the lab (make lab)")
	case 1:
		found = append(found, found[0])
	}
	return [2]port{found[0], found[1]}
}

func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if lab.In() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// side is one end: a device and what is made on it.
type side struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

const bufSize = 1 << 20

// newSide opens one end; everything is closed when the test ends.
func newSide(t testing.TB, p port, qc verbs.QPConfig, cc verbs.CQConfig) *side {
	t.Helper()
	s := &side{}
	var err error
	s.dev, err = verbs.Open(p.name, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.dev.Close()) })
	s.pd, err = s.dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.pd.Close()) })
	s.cq, err = s.dev.CreateCQ(cc)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.cq.Close()) })
	s.mr, err = s.pd.AllocMR(bufSize, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.mr.Close()) })
	qc.SendCQ, qc.GID = s.cq, p.gid
	s.qp, err = s.pd.CreateQP(qc)
	if !lab.In() && errors.Is(err, verbs.ErrUnsupported) {
		t.Skip(err) // RC on EFA
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.qp.Close()) })
	return s
}

func (s *side) endpoint(t testing.TB) verbs.Endpoint {
	t.Helper()
	e, err := s.qp.Endpoint()
	require.NoError(t, err)
	e.Regions = []verbs.Region{s.mr.Region()}
	return e
}

// newPair makes two connected ends (or two active ones, for UD).
func newPair(t testing.TB, qc verbs.QPConfig, cc verbs.CQConfig, conn verbs.ConnectConfig) (a, b *side) {
	t.Helper()
	p := ports(t)
	a, b = newSide(t, p[0], qc, cc), newSide(t, p[1], qc, cc)
	if qc.Type == verbs.UD {
		require.NoError(t, a.qp.Activate())
		require.NoError(t, b.qp.Activate())
		return a, b
	}
	require.NoError(t, a.qp.Connect(b.endpoint(t), conn))
	require.NoError(t, b.qp.Connect(a.endpoint(t), conn))
	return a, b
}

// batch makes a batch of n.
func (s *side) batch(t testing.TB, n int) *verbs.Batch {
	t.Helper()
	b, err := s.qp.NewBatch(n)
	require.NoError(t, err)
	return b
}

// recv posts n receives of size bytes each, at offset id * size.
func (s *side) recv(t testing.TB, n, size int) {
	t.Helper()
	b, err := s.qp.NewRecvBatch(n)
	require.NoError(t, err)
	for i := range n {
		b.Recv(uint64(i), s.mr.SGE(i*size, size))
	}
	posted, err := b.Post()
	require.NoError(t, err)
	require.Equal(t, n, posted)
}

// testTimeout bounds each wait; emulated machines are slow.
const testTimeout = 30 * time.Second

// wait takes exactly n completions.
func (s *side) wait(t testing.TB, n int) []verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	out := make([]verbs.WC, n)
	for got := 0; got < n; {
		m, err := s.cq.Wait(ctx, out[got:])
		require.NoError(t, err, "after %d of %d completions", got, n)
		got += m
	}
	return out
}

// do posts a batch and requires that its n signaled requests succeed.
func (s *side) do(t testing.TB, b *verbs.Batch, n int) []verbs.WC {
	t.Helper()
	_, err := b.Post()
	require.NoError(t, err)
	wcs := s.wait(t, n)
	for i := range wcs {
		require.NoError(t, wcs[i].Err())
	}
	return wcs
}

// dest is the way from a to b for datagrams.
func dest(t testing.TB, a, b *side) verbs.Dest {
	t.Helper()
	e := b.endpoint(t)
	path, err := a.qp.PathTo(e, verbs.ConnectConfig{})
	require.NoError(t, err)
	ah, err := a.pd.CreateAH(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	return verbs.Dest{AH: ah, QPN: e.QPN, QKey: e.QKey}
}

func addrOf(p port) netip.Addr { return p.gid.GID.Addr() }

// needAddresses skips a test that finds its peer by IP address where the GIDs
// are none.
func needAddresses(t testing.TB, p [2]port) [2]port {
	t.Helper()
	for _, q := range p {
		if !addrOf(q).Is4() {
			missing(t, "the GID of %s is no IPv4 address: %v", q.name, q.gid)
		}
	}
	return p
}
