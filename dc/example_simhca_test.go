//go:build simhca && linux && cgo

package dc_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/exampletest"
)

// The example prints what it says on simulated devices.
func TestSimulatedExample(t *testing.T) {
	if !strings.Contains(os.Getenv("SIMHCA"), "mlx5") {
		t.Skip(`needs SIMHCA="mlx5"`)
	}
	t.Setenv("RDMA_DEVICE", simulated[0])
	want := exampletest.Prints(t, "example_test.go")
	require.Equal(t, want["Example"], exampletest.Output(t, Example))
}
