//go:build linux

package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/stream"
)

var objects = rig.Objects{
	Make:    closable,
	Args:    func(*testing.T, map[string]any) []any { return nil },
	Closing: []string{"Conn", "Listener"},
}

// Every call on a closed object returns ErrClosed, with its parents open
// or closed, and none crashes.
func TestEveryCallAfterClose(t *testing.T) { objects.CallClosed(t) }

// Calls on objects that other goroutines close meanwhile return, whatever the
// order, and everything is closed in the end.
func TestUseAndCloseAtOnce(t *testing.T) { objects.UseAndClose(t) }

// What TestEveryCallAfterClose must go through is what the package exports.
func TestEveryTypeIsTriedAfterClose(t *testing.T) { objects.AllTried(t, 10) }

// closable are all kinds of objects, by type name.
func closable(t *testing.T) map[string]any {
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	listener, err := stream.Listen(m, p[1].Addr().String()+":0", stream.Config{})
	require.NoError(t, err)
	conn, other, err := newStreams(p, m, stream.Config{})
	require.NoError(t, err)
	require.NoError(t, other.Close())
	return map[string]any{"Listener": listener, "Conn": conn}
}
