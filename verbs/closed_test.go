//go:build linux

package verbs_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

var objects = rig.Objects{
	Make:    closable,
	Args:    closedArgs,
	Own:     ownBatch,
	Closing: []string{"Dispatcher", "Link", "Requester", "Receiver", "Window", "AH", "TD", "DeviceMemory", "Flow", "QP", "SRQ", "MR", "CQ", "PD", "Device"},
	Users:   map[string][]string{"QP": {"Batch", "RecvBatch", "Masked"}},
	Before: func(object any, method string) {
		if b, ok := object.(*verbs.Batch); ok && method == "Err" {
			b.Reset() // what failed in adding comes first
		}
		if b, ok := object.(*verbs.Batch); ok && (method == "Post" || method == "PostPoll") {
			b.Reset()
			b.Send(1, verbs.Signaled)
		}
		if b, ok := object.(*verbs.RecvBatch); ok && method == "Post" {
			b.Recv(1)
		}
	},
	Plain: []string{"Endpoint", "Region", "WC", "Message", "WCError", "TransitionError", "Pending", "Call", "Batches"},
}

// Every call on a closed object returns ErrClosed, with its parents open
// or closed, and none crashes.
func TestEveryCallAfterClose(t *testing.T) { objects.CallClosed(t) }

// Calls on objects that other goroutines close meanwhile return, whatever the
// order, and everything is closed in the end.
func TestUseAndCloseAtOnce(t *testing.T) { objects.UseAndClose(t) }

// What TestEveryCallAfterClose must go through is what the package exports.
func TestEveryTypeIsTriedAfterClose(t *testing.T) { objects.AllTried(t, 100) }

// closable are all kinds of objects, by type name, with what they stand on.
func closable(t *testing.T) map[string]any {
	p := rig.NeedAddresses(t, rig.Ports(t))
	a, b := rig.NewPair(t, verbs.QPConfig{Ops: verbs.OpBindWindow | verbs.OpLocalInvalidate}, verbs.CQConfig{Fields: verbs.FieldsStandard}, verbs.ConnectConfig{})
	_ = b
	recvs, err := a.QP.NewRecvBatch(4)
	require.NoError(t, err)
	srq, err := a.PD.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	ah, err := a.PD.CreateAH(verbs.AHAttr{GID: p[1].GID.GID, SGIDIndex: p[0].GID.Index, Port: p[0].GID.Port})
	require.NoError(t, err)
	window, err := a.PD.AllocWindow(verbs.Window1)
	require.NoError(t, err)

	ctx := rig.Context(t)
	ls, errs := links(t, ctx, tcpPair(t, p), [2]verbs.LinkConfig{})
	require.NoError(t, errors.Join(errs[:]...))
	dispatcher, err := a.CQ.Dispatch(&readers{}, 1)
	require.NoError(t, err)
	side := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	requester := newRequester(t, side, verbs.RequesterConfig{})
	masked, err := verbs.NewMasked(requester, side.MR, 0, verbs.MaskedConfig{})
	require.NoError(t, err)
	all := map[string]any{"Dispatcher": dispatcher, "Link": ls[0], "Requester": requester,
		"Receiver": newReceiver(t, rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{}), verbs.ReceiverConfig{Size: 64}),
		"Device":   a.Dev, "PD": a.PD, "CQ": a.CQ, "QP": a.QP, "MR": a.MR, "SRQ": srq, "AH": ah, "Window": window,
		"Batch": a.Batch(t, 4), "RecvBatch": recvs, "Masked": masked}
	if td, err := a.Dev.AllocTD(); err == nil {
		all["TD"] = td
	} else {
		require.ErrorIs(t, err, verbs.ErrUnsupported)
	}
	if dm, err := experimental.AllocDeviceMemory(a.Dev, 64, 0); err == nil {
		all["DeviceMemory"] = dm
	} else {
		require.ErrorIs(t, err, verbs.ErrUnsupported)
	}
	return all
}

// ownBatch is a batch for one goroutine to post through the dispatcher.
func ownBatch(t *testing.T, all map[string]any) []any {
	b, err := all["Dispatcher"].(*verbs.Dispatcher).NewBatch(all["QP"].(*verbs.QP), 4)
	require.NoError(t, err)
	return []any{b}
}

// closedArgs are arguments that would do if the object were open.
func closedArgs(t *testing.T, all map[string]any) []any {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { null.Close() })
	gid := all["QP"].(*verbs.QP).GID()
	ah := all["AH"].(*verbs.AH)
	return []any{
		"10.77.0.2:7777", 8, null, gid.GID, make([]verbs.WC, 4), make([]verbs.WCEx, 4),
		verbs.QPConfig{SendCQ: all["CQ"].(*verbs.CQ), GID: gid}, verbs.RC, verbs.StateError, verbs.AttrState, verbs.QPAttr{State: verbs.StateError},
		verbs.Endpoint{Type: verbs.RC, MTU: verbs.MTU1024, GID: gid.GID}, verbs.Destination{AH: ah}, verbs.Target{AH: ah}, verbs.Window1,
		&readers{}, verbs.Remote{Addr: 8}, verbs.SGE{Addr: 8, Length: 8}, all["MR"].(*verbs.MR).Region(),
	}
}
