package rig

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sh(script string) []string { return []string{"sh", "-c", script} }

var server = sh("echo serving; exec sleep 1000")

func TestProcessesReturnsWhatTheClientPrinted(t *testing.T) {
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
	serving := filepath.Join(t.TempDir(), "serving")
	_, err = Processes(t.Context(), sh("echo serving; touch "+serving+"; exec sleep 1000"),
		sh("until test -e "+serving+"; do sleep 0.01; done; echo no such device >&2; exit 3"))
	require.ErrorContains(t, err, "exit status 3: no such device")
	require.ErrorContains(t, err, "server: serving")
}

// Neither side outlives the pass, nor does a grandchild that holds a pipe.
func TestProcessesEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := filepath.Join(t.TempDir(), "begun")
	ended := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := os.Stat(begun); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		ended <- time.Now()
		cancel()
	}()
	_, err := Processes(ctx, server, sh("sleep 1000 & touch "+begun+"; wait"))
	require.ErrorContains(t, err, "killed")
	require.Less(t, time.Since(<-ended), 10*time.Second)
}
