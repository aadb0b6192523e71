//go:build linux

package rig

import (
	"testing"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/exampletest"
)

// Prints is [exampletest.Prints] of examples that have the addresses of the lab in them: elsewhere
// the test is skipped.
func Prints(t *testing.T, files ...string) map[string]string {
	t.Helper()
	if !lab.In() {
		t.Skip("for the lab: its addresses are in the examples")
	}
	return exampletest.Prints(t, files...)
}
