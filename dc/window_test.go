//go:build linux && cgo

package dc

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// newTestHardware is an initiator with one DCI on the stand-in, and a peer.
func newTestHardware(t *testing.T, cfg InitiatorConfig) (*Initiator, *hardware, *Peer) {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{MaxCQE: 1 << 16, MaxReadAtomic: 16, MaxInitRead: 16})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	gid := verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 0xee}
	cfg.PD, cfg.GID, cfg.Backend, cfg.Contexts = pd, verbs.GIDEntry{GID: gid, Port: 1, Index: 3, Type: verbs.GIDRoCEv2}, Hardware, 1
	i, err := NewInitiator(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	p, err := i.Resolve(Address{GID: gid, MTU: verbs.MTU4096, QPN: 1, Generation: 1, Hardware: true}, 1)
	require.NoError(t, err)
	return i, i.be.(*hardware), p
}

// TestGivenUpBesideOthers: when the last DCI is lost, the requests that wait for it have
// failed before anybody else can take them back, or forget their peer.
func TestGivenUpBesideOthers(t *testing.T) {
	for name, beside := range map[string]func(i *Initiator, p *Peer) error{
		"Cancel": func(i *Initiator, p *Peer) error { _, err := i.Cancel(p, 2); return err },
		"Forget": (*Initiator).Forget,
		"Do": func(i *Initiator, p *Peer) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.ErrorContains(t, i.Do(ctx, p, Request{}), "no DCI is left")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, h, p := newTestHardware(t, InitiatorConfig{Depth: 1, Streams: -1})
			_, err := i.Post(p, Request{ID: 1}, Request{ID: 2})
			require.NoError(t, err)
			// The driver's steps, with another goroutine in between.
			i.mu.Lock()
			i.polling++ // a goroutine that performs
			h.core.Completed(0, true)
			i.finish(h.dcis[0].ring.at(0), ErrSession)
			h.urgent()
			slow := h.core.Actions
			h.core.Actions = nil
			i.mu.Unlock()
			require.Len(t, slow, 1)
			standin.Refuse("modify", syscall.EIO)
			h.act(slow[0])
			require.NoError(t, beside(i, p))
			i.mu.Lock()
			i.polling--
			i.unlock()
			cs := make([]Completion, 3)
			n, err := i.Poll(cs)
			require.NoError(t, err)
			require.Equal(t, 2, n)
			require.EqualValues(t, 2, cs[1].ID)
			require.ErrorContains(t, cs[1].Err, "no DCI is left")
		})
	}
}
