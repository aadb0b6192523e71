//go:build linux

package cache_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
)

// A client that is connected and quiet takes no goroutine of the server, and one descriptor:
// nothing that waits or sends, no completion queue; and no memory for all that it could have under way. How many
// bytes there are on an average the benchmark server_bytes_per_connection tells.
func TestServerHasLittleOfAQuietClient(t *testing.T) {
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	connect := func() { whole(t, dial(t, p.address, cache.Config{}), 0) }
	connect() // what comes with the first one only
	least := p.footprint()
	for range 20 { // it has to be told something now and then
		n := p.footprint()
		least.goroutines, least.files, least.bytes = min(least.goroutines, n.goroutines), min(least.files, n.files), min(least.bytes, n.bytes)
	}
	const more, bytes = 4, 192 << 10 // Go's heap and stacks come in pieces for several
	for range more {
		connect()
	}
	var n footprint
	require.Eventually(t, func() bool {
		n = p.footprint()
		return n.goroutines <= least.goroutines && n.files-least.files <= more &&
			(raceDetector || n.bytes-least.bytes <= more*bytes)
	}, stuck, time.Millisecond, "%+v after %+v", &n, &least)
	t.Logf("%d bytes for each client", (n.bytes-least.bytes)/more)
}

// footprint is what a server's process has.
type footprint struct{ goroutines, files, bytes int }

// footprint asks the process for its own.
func (p *process) footprint() (n footprint) {
	p.t.Helper()
	p.signal(syscall.SIGUSR1)
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	_, err = fmt.Sscan(line, &n.goroutines, &n.files, &n.bytes)
	require.NoError(p.t, err)
	return n
}

// tellFootprint prints this process's footprint whenever it is asked for. Its bytes are those that it
// needs: garbage goes first. Pages of the kernel's are not huge here, of which each would be many
// clients'.
func tellFootprint(asked <-chan os.Signal) {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for range asked {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		debug.FreeOSMemory()
		fmt.Println(runtime.NumGoroutine(), len(files), resident())
	}
}

// resident is this process's memory in bytes, its share of what others have too.
func resident() (n int) {
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &n); err == nil {
			break
		}
	}
	return n << 10
}
