//go:build linux

package cache_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
)

// A client that is connected and quiet takes three goroutines of the server, and one descriptor:
// nothing that sends, no completion queue. How many bytes that is the benchmark
// server_bytes_per_connection tells.
func TestServerHasLittleOfAQuietClient(t *testing.T) {
	p := start(t, netip.AddrPortFrom(lab.Require(t, 2)[1].Addr, 0).String())
	connect := func() { whole(t, dial(t, p.address, cache.Config{}), 0) }
	connect() // what comes with the first one only
	least := p.footprint()
	for range 20 { // it has to be told something now and then
		if n := p.footprint(); n.goroutines < least.goroutines {
			least = n
		}
	}
	const more = 4
	for range more {
		connect()
	}
	require.Eventually(t, func() bool {
		n := p.footprint()
		return n.goroutines-least.goroutines <= 3*more && n.files-least.files <= more
	}, stuck, time.Millisecond)
}

// footprint is what a server's process has.
type footprint struct{ goroutines, files int }

// footprint asks the process for its own.
func (p *process) footprint() (n footprint) {
	p.t.Helper()
	p.signal(syscall.SIGUSR1)
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	_, err = fmt.Sscan(line, &n.goroutines, &n.files)
	require.NoError(p.t, err)
	return n
}

// tellFootprint prints this process's footprint whenever it is asked for.
func tellFootprint(asked <-chan os.Signal) {
	for range asked {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Println(runtime.NumGoroutine(), len(files))
	}
}
