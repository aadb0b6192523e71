//go:build linux

package verbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A host with huge pages that are not for this process, as in a container without any:
// the kernel maps them, but does not give them out.
func TestHugePagesBeyondTheLimit(t *testing.T) {
	p := rig.Ports(t)
	if !lab.In() {
		t.Skip("changes the host's pages and control groups")
	}
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o644)) }
	const pages = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(pages)
	require.NoError(t, err)
	write(pages, "4")
	defer write(pages, string(before))
	root := t.TempDir()
	require.NoError(t, unix.Mount("none", root, "cgroup2", 0, ""))
	defer unix.Unmount(root, 0)
	write(filepath.Join(root, "cgroup.subtree_control"), "+hugetlb")
	pod := filepath.Join(root, "pod")
	require.NoError(t, os.Mkdir(pod, 0o755))
	defer os.Remove(pod)
	write(filepath.Join(pod, "hugetlb.2MB.max"), "0")
	write(filepath.Join(pod, "cgroup.procs"), fmt.Sprint(os.Getpid()))
	defer write(filepath.Join(root, "cgroup.procs"), fmt.Sprint(os.Getpid()))

	mr, err := s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesTryHuge})
	require.NoError(t, err)
	mr.Bytes()[3<<20-1] = 1
	require.NoError(t, mr.Close())
	_, err = s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesHuge})
	require.ErrorContains(t, err, "hugetlb limit")
}
