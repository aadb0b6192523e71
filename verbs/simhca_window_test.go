//go:build simhca && linux && cgo

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// windows are two connected queue pairs, memory of the second one's to which windows can
// be bound, and what a try of the first one's ends with. Whatever fails breaks them.
type windows struct {
	t    *testing.T
	a, b *rig.Side
	mr   *verbs.MR
}

func newWindows(t *testing.T, cfg verbs.QPConfig, access verbs.Access) *windows {
	w := &windows{t: t}
	w.a, w.b = rig.NewPair(t, cfg, verbs.CQConfig{}, verbs.ConnectConfig{})
	var err error
	w.mr, err = w.b.PD.AllocMR(8192, verbs.MRConfig{Access: verbs.BindWindow | access})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.mr.Close()) })
	return w
}

func (w *windows) window(typ verbs.WindowType) *verbs.Window {
	m, err := w.b.PD.AllocWindow(typ)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, m.Close()) })
	return m
}

// post makes a side do one thing, and returns how it ended.
func (w *windows) post(s *rig.Side, add func(*verbs.Batch)) error {
	batch := s.Batch(w.t, 1)
	add(batch)
	_, err := batch.Post()
	require.NoError(w.t, err)
	return s.Wait(w.t, 1)[0].Err()
}

// bind binds a window to 64 bytes of the memory.
func (w *windows) bind(m *verbs.Window, off int, access verbs.Access) error {
	return w.post(w.b, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: m, MR: w.mr, Offset: off, Length: 64, Access: access}})
	})
}

func (w *windows) read(r verbs.Remote) error {
	return w.post(w.a, func(b *verbs.Batch) { b.Read(1, verbs.Signaled, r, w.a.MR.SGE(0, 8)) })
}

func (w *windows) write(r verbs.Remote) error {
	return w.post(w.a, func(b *verbs.Batch) { b.Write(1, verbs.Signaled, r, w.a.MR.SGE(0, 8)) })
}

func (w *windows) add(r verbs.Remote) error {
	return w.post(w.a, func(b *verbs.Batch) { b.FetchAdd(1, verbs.Signaled, r, 1, w.a.MR.SGE(0, 8)) })
}

func (w *windows) invalidate(key uint32) error {
	return w.post(w.b, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: key}})
	})
}

// readAlong makes two more queue pairs in the same protection domains, and READs by them.
func (w *windows) readAlong() func(verbs.Region) error {
	p := rig.Ports(w.t)
	var qps [2]*verbs.QP
	var ends [2]verbs.Endpoint
	for k, s := range []*rig.Side{w.a, w.b} {
		qp, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, GID: p[k].GID})
		require.NoError(w.t, err)
		w.t.Cleanup(func() { require.NoError(w.t, qp.Close()) })
		qps[k] = qp
		ends[k], err = qp.Endpoint()
		require.NoError(w.t, err)
	}
	require.NoError(w.t, qps[0].Connect(ends[1], verbs.ConnectConfig{}))
	require.NoError(w.t, qps[1].Connect(ends[0], verbs.ConnectConfig{}))
	batch, err := qps[0].NewBatch(1)
	require.NoError(w.t, err)
	return func(r verbs.Region) error {
		batch.Read(1, verbs.Signaled, r.At(0), w.a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.NoError(w.t, err)
		return w.a.Wait(w.t, 1)[0].Err()
	}
}

// A window gives access to what it is bound to, for what it allows, by the queue pairs that may.
func TestSimulatedWindows(t *testing.T) {
	simulated(t, "mlx5")
	const all = verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic
	for name, cfg := range map[string]verbs.QPConfig{"plain": {}, "extended": {Ops: verbs.OpBindWindow | verbs.OpLocalInvalidate | verbs.OpSendInvalidate}} {
		for what, c := range map[string]struct {
			access verbs.Access
			try    func(*windows, verbs.Region) error
			fails  error
		}{
			"first bytes":    {all, func(w *windows, r verbs.Region) error { return w.read(r.At(0)) }, nil},
			"last bytes":     {all, func(w *windows, r verbs.Region) error { return w.write(r.At(56)) }, nil},
			"atomic":         {all, func(w *windows, r verbs.Region) error { return w.add(r.At(8)) }, nil},
			"behind the end": {all, func(w *windows, r verbs.Region) error { r.Length = 128; return w.read(r.At(57)) }, verbs.WCRemoteAccess},
			"before it":      {all, func(w *windows, r verbs.Region) error { r.Addr--; return w.read(r.At(0)) }, verbs.WCRemoteAccess},
			"WRITE to read":  {verbs.RemoteRead, func(w *windows, r verbs.Region) error { return w.write(r.At(0)) }, verbs.WCRemoteAccess},
			"atomic to read": {verbs.RemoteRead, func(w *windows, r verbs.Region) error { return w.add(r.At(0)) }, verbs.WCRemoteAccess},
			"READ to write":  {verbs.RemoteWrite, func(w *windows, r verbs.Region) error { return w.read(r.At(0)) }, verbs.WCRemoteAccess},
			"another key":    {all, func(w *windows, r verbs.Region) error { r.RKey++; return w.read(r.At(0)) }, verbs.WCRemoteAccess},
			"invalidated": {all, func(w *windows, r verbs.Region) error {
				require.NoError(w.t, w.invalidate(r.RKey))
				return w.read(r.At(0))
			}, verbs.WCRemoteAccess},
			"invalidated by the peer": {all, func(w *windows, r verbs.Region) error {
				w.b.Recv(w.t, 1, 64)
				err := w.post(w.a, func(b *verbs.Batch) {
					b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: r.RKey}, Local: []verbs.SGE{w.a.MR.SGE(0, 8)}})
				})
				require.NoError(w.t, err)
				wc := w.b.Wait(w.t, 1)[0]
				require.NoError(w.t, wc.Err())
				key, ok := wc.Invalidated()
				require.True(w.t, ok)
				require.Equal(w.t, r.RKey, key)
				return w.read(r.At(0))
			}, verbs.WCRemoteAccess},
			"invalidated twice": {all, func(w *windows, r verbs.Region) error {
				require.NoError(w.t, w.invalidate(r.RKey))
				return w.invalidate(r.RKey)
			}, verbs.WCMWBind},
			"invalidated under another key": {all, func(w *windows, r verbs.Region) error { return w.invalidate(r.RKey + 1) }, verbs.WCMWBind},
			"a region invalidated":          {all, func(w *windows, _ verbs.Region) error { return w.invalidate(w.mr.Region().RKey) }, verbs.WCMWBind},
			"a region invalidated by the peer": {all, func(w *windows, _ verbs.Region) error {
				w.b.Recv(w.t, 1, 64)
				return w.post(w.a, func(b *verbs.Batch) {
					b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: w.mr.Region().RKey}, Local: []verbs.SGE{w.a.MR.SGE(0, 8)}})
				})
			}, verbs.WCRemoteAccess},
		} {
			w := newWindows(t, cfg, verbs.RemoteRead) // what the region allows peers does not count
			m := w.window(verbs.Window2)
			require.NoError(t, w.bind(m, 4096, c.access))
			err := c.try(w, m.Region())
			require.ErrorIs(t, err, c.fails, "%s, %s", name, what)
		}
	}
}

// A window of type 2 is bound again when it was invalidated, under a new key, and works
// for the queue pair alone that bound it; one of type 1 for all of its domain.
func TestSimulatedWindowsBoundAgain(t *testing.T) {
	simulated(t, "mlx5")
	w := newWindows(t, verbs.QPConfig{}, 0)
	m := w.window(verbs.Window2)
	copy(w.mr.Bytes()[4096:], "second")
	var before verbs.Region
	for k := range 300 { // the keys come around
		require.NoError(t, w.bind(m, 4096*(k%2), verbs.RemoteRead))
		r := m.Region()
		require.NotEqual(t, before.RKey, r.RKey)
		require.NoError(t, w.read(r.At(0)))
		require.Equal(t, k%2 == 1, string(w.a.MR.Bytes()[:6]) == "second")
		require.NoError(t, w.invalidate(r.RKey))
		before = r
	}
	require.NoError(t, w.bind(m, 0, verbs.RemoteRead))
	read := w.readAlong()
	one := w.window(verbs.Window1)
	for k := range 3 { // it is bound again without further ado
		require.NoError(t, one.Bind(w.b.QP, 1, verbs.Signaled, w.mr, 4096, 64, verbs.RemoteRead))
		require.NoError(t, w.b.Wait(t, 1)[0].Err())
		require.NoError(t, read(one.Region()), "time %d", k)
	}
	dead := one.Region()
	require.NoError(t, one.Bind(w.b.QP, 1, verbs.Signaled, w.mr, 0, 64, verbs.RemoteRead))
	require.NoError(t, w.b.Wait(t, 1)[0].Err())
	require.NoError(t, w.read(m.Region().At(0)))
	require.ErrorIs(t, read(dead), verbs.WCRemoteAccess)
	require.ErrorIs(t, w.invalidate(one.Region().RKey), verbs.WCMWBind, "a window of type 1 is bound to nothing instead")
}

// What is bound wrongly is refused by the device, if not before.
func TestSimulatedWindowsRefused(t *testing.T) {
	simulated(t, "mlx5")
	w := newWindows(t, verbs.QPConfig{}, 0)
	m := w.window(verbs.Window2)
	require.NoError(t, w.bind(m, 0, verbs.RemoteRead))
	require.ErrorIs(t, w.bind(m, 0, verbs.RemoteRead), verbs.WCMWBind, "bound without having been invalidated")

	w = newWindows(t, verbs.QPConfig{}, 0)
	m = w.window(verbs.Window2)
	require.NoError(t, w.bind(m, 0, verbs.RemoteRead))
	region := m.Region()
	require.NoError(t, m.Close())
	require.ErrorIs(t, w.read(region.At(0)), verbs.WCRemoteAccess, "closed")

	w = newWindows(t, verbs.QPConfig{}, 0)
	m = w.window(verbs.Window1)
	require.NoError(t, m.Bind(w.b.QP, 1, verbs.Signaled, w.mr, 0, 64, verbs.RemoteRead))
	require.NoError(t, w.b.Wait(t, 1)[0].Err())
	require.NoError(t, w.read(m.Region().At(0)))
	require.ErrorIs(t, w.write(m.Region().At(0)), verbs.WCRemoteAccess, "a window of type 1 to be read")
}

// A window of type 2 is for peers of the queue pair that bound it, and either is for those
// of its protection domain.
func TestSimulatedWindowOfAnother(t *testing.T) {
	simulated(t, "mlx5")
	w := newWindows(t, verbs.QPConfig{}, 0)
	m := w.window(verbs.Window2)
	require.NoError(t, w.bind(m, 0, verbs.RemoteRead))
	require.NoError(t, w.read(m.Region().At(0)))
	require.ErrorIs(t, w.readAlong()(m.Region()), verbs.WCRemoteAccess)

	one := w.window(verbs.Window1)
	require.NoError(t, one.Bind(w.b.QP, 1, verbs.Signaled, w.mr, 0, 64, verbs.RemoteRead))
	require.NoError(t, w.b.Wait(t, 1)[0].Err())
	require.NoError(t, w.readAlong()(one.Region()))
	require.ErrorIs(t, newWindows(t, verbs.QPConfig{}, 0).read(one.Region().At(0)), verbs.WCRemoteAccess, "another domain")
}
