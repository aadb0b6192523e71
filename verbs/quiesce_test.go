//go:build linux

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelsWhoseResetWaits(t *testing.T) {
	for release, waits := range map[string]bool{
		"5.15.0-91-generic": false, "6.1.0-38-amd64": false, "6.3.13": false, "6.4.0": true, "6.12.43+deb13-amd64": true, "7.0.0": true, "": false, "x": false,
	} {
		require.Equal(t, waits, waitsIn(release), release)
	}
}
