package vm

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUTime(t *testing.T) {
	before := cpuTime(os.Getpid())
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
	}
	require.Greater(t, cpuTime(os.Getpid()), before)
	require.Less(t, cpuTime(os.Getpid()), time.Hour)
	require.Zero(t, cpuTime(1<<30))
}
