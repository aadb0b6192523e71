package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugeLimit returns the file of the cgroup limit that keeps this process from using huge
// pages, though the host has some; empty if there is none. root is "/", but in tests.
func hugeLimit(root string) string {
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(root, name))
		return strings.TrimSpace(string(b))
	}
	own := ""
	for line := range strings.Lines(read("proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = path
		}
	}
	pools, _ := filepath.Glob(filepath.Join(root, "sys/kernel/mm/hugepages/hugepages-*kB"))
	for _, pool := range pools {
		size, ok := cgroupSize(filepath.Base(pool))
		n, _ := strconv.Atoi(read(strings.TrimPrefix(pool, root) + "/nr_hugepages"))
		if !ok || n == 0 {
			continue
		}
		for dir := filepath.Join("/", own); ; dir = filepath.Dir(dir) {
			for _, kind := range []string{"max", "rsvd.max"} {
				name := filepath.Join("/sys/fs/cgroup", dir, "hugetlb."+size+"."+kind)
				if read(name) == "0" {
					return name
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return ""
}

// cgroupSize returns the size of the pages of a pool, "hugepages-2048kB", as cgroups have
// it, "2MB".
func cgroupSize(pool string) (string, bool) {
	kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(pool, "hugepages-"), "kB"))
	switch {
	case err != nil:
		return "", false
	case kb >= 1<<20:
		return strconv.Itoa(kb>>20) + "GB", true
	case kb >= 1<<10:
		return strconv.Itoa(kb>>10) + "MB", true
	}
	return strconv.Itoa(kb) + "KB", true
}
