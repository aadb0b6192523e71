//go:build linux

package pacer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// end is one end of the wire.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	gid verbs.GIDEntry
	mr  *verbs.MR
}

const memory = 1 << 20

// simulated are devices without addresses that stand for the ends of the wire:
// those of cgo/simhca.
var simulated []string

func open(t *testing.T, device string, which verbs.GIDQuery) end {
	t.Helper()
	dev, err := verbs.Open(device, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	gid, err := dev.FindGID(which)
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	mr, err := pd.AllocMR(memory, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	return end{dev, pd, gid, mr}
}

// rig is a requester and a responder.
type rig struct {
	t    *testing.T
	a, b end
	p    *pacer.Pacer

	retries int // of the queue pairs that are paced
}

func newRig(t *testing.T, c pacer.Config) *rig {
	t.Helper()
	r := &rig{t: t}
	if len(simulated) > 0 {
		r.a, r.b = open(t, simulated[0], verbs.GIDQuery{Port: 1}), open(t, simulated[1], verbs.GIDQuery{Port: 1})
	} else {
		ends := lab.Require(t, 2)
		r.a, r.b = open(t, ends[0].Device, verbs.GIDQuery{Addr: ends[0].Addr}), open(t, ends[1].Device, verbs.GIDQuery{Addr: ends[1].Addr})
	}
	p, err := pacer.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	r.p = p
	data := r.b.mr.Bytes()
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	return r
}

func (r *rig) cq() *verbs.CQ {
	r.t.Helper()
	cq, err := r.a.dev.CreateCQ(verbs.CQConfig{Depth: 512})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, cq.Close()) })
	return cq
}

// peer is the other end of a queue pair.
func (r *rig) peer() *verbs.QP {
	r.t.Helper()
	cq, err := r.b.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, cq.Close()) })
	qp, err := r.b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.b.gid})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, qp.Close()) })
	return qp
}

func (r *rig) connect(qp, peer *verbs.QP) {
	r.t.Helper()
	ea, err := qp.Endpoint()
	require.NoError(r.t, err)
	eb, err := peer.Endpoint()
	require.NoError(r.t, err)
	require.NoError(r.t, peer.Connect(ea, verbs.ConnectConfig{}))
	require.NoError(r.t, qp.Connect(eb, verbs.ConnectConfig{AckTimeout: 67 * time.Millisecond, Retries: r.retries}))
}

// paced is a connected queue pair that is paced.
func (r *rig) paced(cq *verbs.CQ, qc verbs.QPConfig, fc pacer.FlowConfig) (*pacer.QP, *verbs.QP) {
	r.t.Helper()
	qc.SendCQ, qc.GID = cq, r.a.gid
	qp, err := r.a.pd.CreateQP(qc)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, qp.Close()) })
	peer := r.peer()
	r.connect(qp, peer)
	q, err := r.p.Wrap(qp, cq, fc)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, q.Close()) })
	return q, peer
}

const stuck = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	t.Cleanup(cancel)
	return ctx
}

// idle requires that all credit is back.
func (r *rig) idle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.p.Stats().Outstanding == 0 && r.p.Stats().Alive == 0 }, time.Minute, time.Millisecond, "%+v", r.p.Stats())
}
