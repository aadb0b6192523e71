package srd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// The error of a message to a silent peer says why there is no way to it, if that is known.
func TestWhyThereIsNoWay(t *testing.T) {
	ep := &Endpoint{}
	ep.handles.init(ep)
	r, to := &request{status: Unresponsive, unauthenticated: true}, verbs.GID{0: 1}
	require.Equal(t, errNoReply, ep.why(r, to, nil))
	ep.handles.note(to, verbs.ErrNoGID)
	err := ep.why(r, to, nil)
	require.ErrorIs(t, err, ErrUnresponsive)
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.Equal(t, errNoReply, ep.why(r, verbs.GID{0: 2}, nil))
	r.status = Delivered
	require.NoError(t, ep.why(r, to, nil))
	r.status = Unresponsive
	ep.handles.note(to, nil)
	require.Equal(t, errNoReply, ep.why(r, to, nil))
	for i := range 2 * maxFailed {
		ep.handles.note(verbs.GID{byte(i), byte(i >> 8)}, verbs.ErrNoGID)
	}
	require.LessOrEqual(t, len(ep.handles.failed), maxFailed)
}
