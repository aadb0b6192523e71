package rig

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sh(script string) []string { return []string{"sh", "-c", script} }

var server = sh("echo serving; exec sleep 1000")

func TestProcessesAnswersWhatTheClientPrinted(t *testing.T) {
	out, err := Processes(t.Context(), server, sh("echo $X"), "X=12.5")
	require.NoError(t, err)
	require.Equal(t, "12.5\n", string(out))
}

// A client that comes before the server listens is started again; one that fails
// otherwise is not, and the error has what both said.
func TestClientThatFails(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	out, err := Processes(t.Context(), server, sh("test -e "+once+" && echo 1 && exit; touch "+once+"; echo \"Couldn't connect\"; exit 1"))
	require.NoError(t, err)
	require.Equal(t, "1\n", string(out))
	_, err = Processes(t.Context(), server, sh("echo no such device >&2; exit 3"))
	require.ErrorContains(t, err, "exit status 3: no such device")
	require.ErrorContains(t, err, "server: serving")
}

// Neither side outlives the pass, nor does a grandchild that holds a pipe.
func TestProcessesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Processes(ctx, server, sh("sleep 1000 & wait"))
	require.ErrorContains(t, err, "killed")
	require.Less(t, time.Since(start), 10*time.Second)
}
