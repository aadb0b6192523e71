//go:build simhca && linux && cgo

package pacer_test

import (
	"os"

	_ "github.com/goverbs/goverbs/cgo/simhca" // SIMHCA names the devices that it simulates
)

// The device tests run on the unchanged libmlx5 too, over devices that are simulated
// below it: there a READ is over in a microsecond, and many more schedules are seen.

func init() {
	if os.Getenv("SIMHCA") != "" {
		simulated = []string{"mlx5_0", "mlx5_1"}
	}
}
