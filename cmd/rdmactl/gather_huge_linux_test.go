package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHugeLimit(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text+"\n"), 0o644))
	}
	const limit = "/sys/fs/cgroup/pods/hugetlb.2MB.max"
	write("proc/self/cgroup", "0::/pods/one")
	write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0")
	write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1")
	write("sys/fs/cgroup/pods/one/hugetlb.2MB.max", "max")
	write("sys/fs/cgroup/pods/one/hugetlb.1GB.max", "max")
	write(limit, "0")
	require.Empty(t, hugeLimit(root), "the host has no pages of 2 MiB")
	write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "40")
	require.Equal(t, limit, hugeLimit(root))
	write(limit, "4194304")
	require.Empty(t, hugeLimit(root))
}
