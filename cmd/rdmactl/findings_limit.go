package main

import (
	"fmt"
	"strings"
)

const (
	littleMemlock = 64 << 20 // bytes; the usual default is 8 MiB or less
	fewFiles      = 1024

	testMemlock = 4 << 20 // bytes that a self-test needs
	testFiles   = 64
)

const moreFiles = "\"* - nofile 65536\" in /etc/security/limits.d/rdma.conf and log in anew; LimitNOFILE=65536 of a systemd unit; docker run --ulimit nofile=65536"

// low returns which limits are too low for a self-test, with remedies, or nothing.
func (f facts) low() string {
	var found []finding
	if f.Memlock.Soft < testMemlock {
		found = checkMemlock(f)
	}
	if f.Files.Soft < testFiles {
		found = append(found, checkOpenFiles(f)...)
	}
	var out []string
	for _, x := range found {
		out = append(out, x.Text+": "+x.Remedy)
	}
	return strings.Join(out, "; ")
}

func checkMemlock(f facts) []finding {
	if f.LocksAll || f.Memlock.Soft >= littleMemlock {
		return nil
	}
	remedy := "raise it: \"* - memlock unlimited\" in /etc/security/limits.d/rdma.conf and log in anew; LimitMEMLOCK=infinity of a systemd unit; docker run --ulimit memlock=-1"
	if f.Memlock.Hard > f.Memlock.Soft {
		remedy = "ulimit -l " + kib(f.Memlock.Hard) + " in the shell that starts the program; for good, " + remedy
	}
	return []finding{{problem, "", "limits", "only " + kib(f.Memlock.Soft) + " KiB of memory may be locked (ulimit -l); registered memory is locked", remedy}}
}

func checkOpenFiles(f facts) []finding {
	if f.Files.Soft >= fewFiles {
		return nil
	}
	return []finding{{problem, "", "limits",
		fmt.Sprintf("only %d files may be open (ulimit -n); each device and each completion channel is one", f.Files.Soft),
		moreFiles}}
}

func checkHugePages(f facts) []finding {
	if f.HugeLimit == "" {
		return nil
	}
	return []finding{{advice, "", "limits", "the host has huge pages, and this cgroup may use none (" + f.HugeLimit + " is 0)",
		"leave huge pages out (cache server: no huge_pages), or raise the limit: resources.limits hugepages-2Mi of a Kubernetes pod"}}
}

// kib returns a number of bytes as ulimit -l takes it.
func kib(bytes uint64) string {
	if bytes == unlimited {
		return "unlimited"
	}
	return fmt.Sprint(bytes >> 10)
}
