package version

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	settings := func(keysAndValues ...string) (out []debug.BuildSetting) {
		for i := 0; i < len(keysAndValues); i += 2 {
			out = append(out, debug.BuildSetting{Key: keysAndValues[i], Value: keysAndValues[i+1]})
		}
		return out
	}
	released := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"},
		Settings: settings("CGO_ENABLED", "1", "GOARCH", "arm64", "GOOS", "linux")}
	require.Equal(t, "rdmactl v0.1.0, go1.26.8 linux/arm64", describe("rdmactl", released))

	checkout := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: settings("-tags", "simhca", "CGO_ENABLED", "0", "GOARCH", "amd64", "GOOS", "linux",
		"vcs.revision", "5521f8c1aabbccddeeff00112233445566778899", "vcs.time", "2026-11-28T00:00:00Z", "vcs.modified", "true")}
	require.Equal(t, "rdmabench (devel), revision 5521f8c1aabb of 2026-11-28T00:00:00Z and changes, go1.26.8 linux/amd64, without cgo, so without RDMA, tags simhca",
		describe("rdmabench", checkout))
}

// Each command says its version, and starts in 50 ms: one start of a hundred, since other tests run.
func TestCommandsStart(t *testing.T) {
	const limit = 50 * time.Millisecond
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	programs, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, programs, 3)
	for _, program := range programs {
		best := time.Hour
		for n := 0; n < 100 && best >= limit; n++ {
			start := time.Now()
			out, err := exec.CommandContext(t.Context(), program, "-version").CombinedOutput()
			best = min(best, time.Since(start))
			require.NoError(t, err, "%s", out)
			require.Regexp(t, "^"+filepath.Base(program)+` \S+.*, go1\.\S+ \w+/\w+`, string(out))
		}
		t.Logf("%s starts in %v", filepath.Base(program), best)
		require.Less(t, best, limit, "%s", program)
	}
}
