//go:build linux && cgo

package verbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error names the request and the queue pair once, with the likely cause, on one line.
func TestErrorText(t *testing.T) {
	wc := &WCError{Status: WCRemoteAccess, QPNum: 0x12, ID: 0xf41aa3}
	err := opError("WRITE on", "qp 0x12 to qp 0x13 at 10.77.0.1", wc)
	require.Contains(t, err.Error(), "verbs: WRITE on qp 0x12 to qp 0x13 at 10.77.0.1: remote access error (the peer does not allow it: a wrong or old rkey")
	require.NotContains(t, err.Error(), "0xf41aa3")
	require.ErrorIs(t, err, WCRemoteAccess)
	require.Contains(t, class(WCFlushed, opError("use", "qp 0x12", wc)).Error(), "remote access error (the peer")
	require.Contains(t, wc.Error(), "verbs: work request 0xf41aa3 on qp 0x12: remote access error (")
	wc.VendorErr = 0x88
	require.Contains(t, wc.Error(), "; vendor error 0x88)")
	for _, s := range []WCStatus{WCLocalLength, WCLocalQPOperation, WCRemoteOperation, WCRemoteInvalid} {
		require.ErrorContains(t, &WCError{Status: s}, "ReceiverConfig.Size")
	}
	require.NotContains(t, opError("close", "link", errors.Join(wc, ErrInUse)).Error(), "\n")
}

// A request that the peer's device does not acknowledge has not reached it.
func TestNotAcknowledgedIsUnreachable(t *testing.T) {
	for s, unreachable := range map[WCStatus]bool{WCRetryExceeded: true, WCResponseTimeout: true, WCRNRRetryExceeded: false, WCFlushed: false, WCRemoteAccess: false} {
		err := opError("READ on", "qp 0x12", &WCError{Status: s})
		require.Equal(t, unreachable, errors.Is(err, ErrUnreachable), s)
		require.Equal(t, unreachable, errors.Is(class(WCFlushed, err), ErrUnreachable), s)
		require.ErrorIs(t, err, s)
	}
}
