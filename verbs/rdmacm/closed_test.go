//go:build linux

package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

var objects = rig.Objects{
	Make: closable,
	Args: func(*testing.T, map[string]any) []any {
		return []any{"10.77.0.2:7777", netip.MustParseAddr("239.7.7.9")}
	},
	Closing: []string{"Peer", "Conn", "Listener", "CM"},
	Users:   map[string][]string{"Conn": {"Request"}},
	Returns: map[string]error{ // a call that ends what has ended already succeeds
		"Conn.Disconnect":   nil,
		"Conn.Err":          rdmacm.ErrDisconnected,
		"Request.Accept":    verbs.ErrState, // it is accepted or rejected: that is its end
		"Request.AcceptUD":  verbs.ErrState,
		"Request.Reject":    verbs.ErrState,
		"Request.AcceptQPN": verbs.ErrAttributes, // it was for a connection
	},
	Plain: []string{"RejectedError"},
}

// Every call on a closed object returns ErrClosed, with its parents open
// or closed, and none crashes.
func TestEveryCallAfterClose(t *testing.T) { objects.CallClosed(t) }

// Calls on objects that other goroutines close meanwhile return, whatever the
// order, and everything is closed in the end.
func TestUseAndCloseAtOnce(t *testing.T) { objects.UseAndClose(t) }

// What TestEveryCallAfterClose must go through is what the package exports.
func TestEveryTypeIsTriedAfterClose(t *testing.T) { objects.AllTried(t, 20) }

// closable are all kinds of objects, by type name.
func closable(t *testing.T) map[string]any {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	listener, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	accepted := make(chan *rdmacm.Conn, 1)
	var request *rdmacm.Request
	go func() {
		r, err := listener.Accept(ctx)
		if err != nil {
			close(accepted)
			return
		}
		request = r
		c, _ := r.Accept(ctx, rdmacm.ConnConfig{})
		accepted <- c
	}()
	local := netip.AddrPortFrom(p[0].Addr(), 0)
	conn, err := m.Dial(ctx, listener.Addr().String(), rdmacm.DialConfig{Local: local})
	require.NoError(t, err)
	far := <-accepted
	require.NotNil(t, far)
	require.NoError(t, far.Close())
	<-conn.Done()
	peer, err := m.Join(ctx, netip.MustParseAddr("239.7.7.9"), rdmacm.DialConfig{Local: local})
	require.NoError(t, err)
	return map[string]any{"CM": m, "Listener": listener, "Conn": conn, "Request": request, "Peer": peer}
}
