//go:build linux

package cache_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
)

// A server of a thousand clients needs 64 MB for them, and not more: what the process has on
// the heap, for stacks, for queues of the device and for registered memory, by clients that are
// connected and quiet.
func TestServerBytesPerConnection(t *testing.T) {
	const few, many = 2, 6
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	connect := func(n int) int {
		for range n {
			whole(t, dial(t, p.address, cache.Config{}), 0)
		}
		return p.footprint()
	}
	before := connect(few) // what grows with the first ones only
	each := (connect(many) - before) / many
	t.Log(each, "bytes for each connection")
	require.Less(t, each, 64<<10)
}

// footprint asks the process for its own.
func (p *process) footprint() int {
	p.t.Helper()
	p.signal(syscall.SIGUSR1)
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	n, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(p.t, err)
	return n
}

// footprint is how much memory this process uses, in bytes: Go's, the device's queues and what
// is registered. What the garbage collector has not given back yet is not in it.
func footprint() (int, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := int(m.HeapAlloc + m.StackInuse)
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var device bool
	var rss int
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); {
		case strings.Contains(words[0], "-"): // a mapping begins
			device = len(words) > 5 && strings.Contains(words[5], "uverbs")
		case words[0] == "Rss:":
			kib, err := strconv.Atoi(words[1])
			if err != nil {
				return 0, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			rss = kib << 10
		case words[0] == "VmFlags:": // the last line of one
			if device || strings.Contains(lines.Text(), " dc") { // not for forked children: registered
				n += rss
			}
		}
	}
	return n, lines.Err()
}
