package debian_test

import (
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// online skips a test that has to download something where it cannot.
func online(t *testing.T) {
	t.Helper()
	mirror, err := debian.HostMirror()
	if err != nil {
		t.Skip("the host is no Debian: ", err)
	}
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Head(mirror + "/dists/trixie/InRelease")
	if err != nil {
		t.Skip("no network: ", err)
	}
	res.Body.Close()
}

func TestRealPackages(t *testing.T) {
	online(t)
	dir, err := debian.Unpack(t.Context(), t.TempDir(), "trixie", "arm64", "libibverbs1", "libnl-3-200")
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(dir, "lib/aarch64-linux-gnu/libibverbs.so.1.*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
}

// Programs of Debian 13 run in its root.
func TestRealRoot(t *testing.T) {
	online(t)
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	folder, err := cache.Dir()
	require.NoError(t, err)
	start := time.Now()
	root, err := debian.Root(t.Context(), folder, "trixie", "amd64", debian.Userland...)
	require.NoError(t, err)
	took := time.Since(start)
	var size int64
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
		}
		return err
	}))
	t.Logf("%s: %d MB, %v", root, size>>20, took.Round(time.Millisecond))

	if out, err := exec.CommandContext(t.Context(), "unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted for one command alone, as in a chroot whose root is no mount: %s", out)
	}
	// The root is shared: what is mounted is there for this command only.
	const script = `set -e
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
chroot "$1" /bin/sh -ec '
	dpkg-query -W libibverbs1
	ip -V
	echo 3 4 | awk "{ print \$1 * \$2 }"
	ibv_devices 2>&1 || true
	ib_read_lat --version || true
	readlink /var/run
	getent hosts localhost
	grep -c . /etc/ld.so.cache >/dev/null && echo has a linker cache'`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script, "sh", root)
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	for _, want := range []string{"libibverbs1:amd64\t56", "iproute2", "\n12\n", "IB devices", "Version: ", "\n/run\n", "localhost", "has a linker cache"} {
		require.Contains(t, string(said), want)
	}
}
