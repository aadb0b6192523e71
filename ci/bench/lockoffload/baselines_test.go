//go:build linux

package lockoffload

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/procs"
	"github.com/goverbs/goverbs/lockoffload"
)

// TestMain runs a role when this program is started for one.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "-role" {
		fmt.Fprintln(os.Stderr, Roles[os.Args[2]](context.Background(), os.Args[4]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A baseline that is fast because it is wrong would be none: no client loses
// another's change. Each change adds one to a byte that it read under the lock.
func TestBaselinesLoseNoChange(t *testing.T) {
	lab.Require(t, 2)
	procs.SpareProcs()
	const clients, each = 6, 30
	for name, pauses := range map[string]backoff{"without pauses": {}, "with pauses": crowdPauses} {
		for _, kind := range []string{"direct", "naive"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				g, err := newTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 1}, time.Minute)
				require.NoError(t, err)
				var wg sync.WaitGroup
				errs := make([]error, clients)
				for i := range clients {
					p, err := g.newPlain(uint64(i + 1))
					require.NoError(t, err)
					change := (&naive{p}).change
					if kind == "direct" {
						change = (&direct{p, pauses}).change
					}
					wg.Go(func() {
						for k := 0; k < each && errs[i] == nil; k++ {
							errs[i] = change(t.Context(), 0)
						}
					})
				}
				wg.Wait()
				for _, err := range errs {
					require.NoError(t, err)
				}
				require.Equal(t, byte(clients*each), g.plain.Bytes()[plainData])
				require.Zero(t, g.plain.Bytes()[0], "the lock is free")
			})
		}
	}
}

// The process that holds the lock is dead when the other client gets it, and that
// is not before its lease is over.
func TestHolderIsKilled(t *testing.T) {
	lab.Require(t, 2)
	procs.SpareProcs()
	g, err := newTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 4}, killedLease)
	require.NoError(t, err)
	defer g.srv.Close()
	other, err := g.newClient()
	require.NoError(t, err)
	defer other.Close()
	took, err := killHolders(t.Context(), g, other, 1)
	require.NoError(t, err)
	t.Logf("recovered after %v, with a lease of %v", took, killedLease)
	require.Greater(t, took, killedLease/2, "nobody waits for a lease when the holder gave the lock back")
	require.Less(t, took, 3*killedLease)
}
