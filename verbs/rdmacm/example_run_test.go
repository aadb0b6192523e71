//go:build linux

package rdmacm_test

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
		served := make(chan struct{})
		go func() { defer close(served); ExampleCM_ServeLinks() }()
		require.Eventually(t, func() bool {
			c, err := m.Dial(ctx, "10.77.0.2:7473", rdmacm.DialConfig{}) // which is no link
			if err == nil {
				err = c.Close()
			}
			return !errors.Is(err, syscall.ECONNREFUSED)
		}, rig.Timeout, 5*time.Millisecond)
		ExampleCM_DialLink()
		<-served
	})
	require.Equal(t, prints["ExampleCM_DialLink"]+prints["ExampleCM_ServeLinks"], got)
	require.Len(t, prints, 2, "an example that is not run")
}
