//go:build linux

package dc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestErrors: what befalls a request has one error with both back ends, and requests that
// were certainly not carried out do not end with [dc.ErrSession].
func TestErrors(t *testing.T) { onBackEnds(t, sameErrors) }

func sameErrors(t *testing.T, a, b *host) {
	type end struct {
		i      *dc.Initiator
		target *dc.Target
		p      *dc.Peer
	}
	// within carries out a request, for so long at most, and waits until it is over.
	within := func(d time.Duration, e end, r dc.Request) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return over(e.i.Do(ctx, e.p, r))
	}
	send := dc.Request{Op: dc.Send, Local: a.mr.SGE(0, 8)}
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, e end) error
		is     []error
		undone bool // certainly
	}{
		{"remote access", func(_ *testing.T, e end) error {
			bad := a.write(1, b, 0)
			bad.Remote.RKey ^= 0xff00
			return within(testTimeout, e, bad)
		}, []error{verbs.WCRemoteAccess}, true},
		{"long WRITE with immediate without receive", func(_ *testing.T, e end) error { // which hardware waits for
			return within(2*time.Second, e, dc.Request{Op: dc.WriteImm, Local: a.mr.SGE(0, 16<<10), Remote: b.mr.Region().At(0)})
		}, []error{dc.ErrSession}, false},
		{"target closed", func(t *testing.T, e end) error {
			do(t, e.i, e.p, a.write(1, b, 0))
			require.NoError(t, e.target.Close())
			return within(testTimeout, e, a.write(2, b, 0))
		}, []error{dc.ErrSession, dc.ErrUnreachable}, false},
		{"target unknown", func(t *testing.T, e end) error {
			require.NoError(t, e.target.Close())
			return within(testTimeout, e, a.write(1, b, 0))
		}, []error{dc.ErrUnreachable}, false},
		{"timeout", func(t *testing.T, e end) error { // behind a message without receive
			_, err := e.i.Post(e.p, send)
			require.NoError(t, err)
			late := a.write(1, b, 0)
			late.Timeout = 20 * time.Millisecond
			return within(testTimeout, e, late)
		}, []error{dc.ErrTimeout}, true},
		{"context over before", func(t *testing.T, e end) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return e.i.Do(ctx, e.p, a.write(1, b, 0))
		}, []error{context.Canceled}, true},
		{"initiator closed", func(t *testing.T, e end) error {
			require.NoError(t, e.i.Close())
			return within(testTimeout, e, a.write(1, b, 0))
		}, []error{dc.ErrClosed}, true},
		{"initiator closed meanwhile", func(t *testing.T, e end) error {
			done := make(chan error)
			go func() { done <- within(testTimeout, e, send) }()
			require.Eventually(t, func() bool { return e.p.Stats().Posted > 0 }, testTimeout, time.Millisecond)
			require.NoError(t, e.i.Close())
			return <-done
		}, []error{dc.ErrClosed}, false},
		{"peer forgotten", func(t *testing.T, e end) error {
			require.NoError(t, e.i.Forget(e.p))
			return within(testTimeout, e, a.write(1, b, 0))
		}, []error{dc.ErrClosed}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := end{target: b.target(t, dc.TargetConfig{}),
				i: a.initiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 1, AckTimeout: 4 * time.Millisecond, ConnectTimeout: 300 * time.Millisecond})}
			e.p = resolve(t, e.i, e.target, 0)
			err := c.do(t, e)
			t.Log(err)
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			if c.undone {
				require.NotErrorIs(t, err, dc.ErrSession)
			}
		})
	}
}
