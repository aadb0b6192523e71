//go:build unix

package verbs

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// An interrupt without a waiter is for the next wait: a queue that overran
// must not be waited for because the next wait has another context.
func TestInterruptOutlivesTheChangeOfContexts(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	var waits waiter
	require.NoError(t, waits.init(new(CQ), r))
	defer waits.shut()
	never := func(uintptr) bool { return false }

	first, cancel := context.WithCancel(t.Context())
	waits.watch(first)
	cancel()
	require.ErrorIs(t, waits.conn.Read(never), os.ErrDeadlineExceeded, "the context's own")

	waits.interrupt()
	second, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits.watch(second)
	require.ErrorIs(t, waits.conn.Read(never), os.ErrDeadlineExceeded)
}
