//go:build linux

package verbs_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A user without privileges, with the limit of locked memory that many systems have, makes
// links of little memory, and is told what is too much.
func TestMemlockLimitOfAnOrdinaryUser(t *testing.T) {
	const child = "VERBS_ORDINARY_USER"
	if os.Getenv(child) == "" {
		lab.RequireTopology(t, "wire")
		self, err := os.Open("/proc/self/exe") // the user may not look into the folder that has it
		require.NoError(t, err)
		defer self.Close()
		cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3", "-test.run=^TestMemlockLimitOfAnOrdinaryUser$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		cmd.ExtraFiles = []*os.File{self}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestMemlockLimitOfAnOrdinaryUser")
		return
	}
	require.NotZero(t, os.Geteuid())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	p := rig.Ports(t)
	dev, _, err := verbs.OpenFor(t.Context(), p[0].Addr(), verbs.DeviceConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	_, err = pd.AllocMR(16<<20, verbs.MRConfig{})
	require.ErrorIs(t, err, verbs.ErrMemlock)
	require.ErrorContains(t, err, "ulimit -l unlimited")
	readOver(t, p[0].Addr(), p[1].Addr())
}
