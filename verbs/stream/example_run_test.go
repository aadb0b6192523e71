//go:build linux

package stream_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/exampletest"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// What examples say that they print is what they print, in the lab.
func TestExamples(t *testing.T) {
	rig.CMPorts(t)
	prints := rig.Prints(t, "example_test.go")
	m, ctx := rig.NewCM(t), rig.Context(t)
	got := exampletest.Output(t, func() {
		done := make(chan struct{})
		go func() { defer close(done); ExampleListen() }()
		require.Eventually(t, func() bool {
			_, err := m.Dial(ctx, "10.77.0.2:7472", rdmacm.DialConfig{}) // which is no stream
			require.Error(t, err)
			return !errors.Is(err, syscall.ECONNREFUSED)
		}, rig.Timeout, 5*time.Millisecond)
		ExampleDial()
		<-done
	})
	near, far := prints["ExampleDial"], prints["ExampleListen"]
	require.Contains(t, []string{near + far, far + near}, got)
	require.Len(t, prints, 2, "an example that is not run")
}
