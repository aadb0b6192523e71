package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// TestMain makes the test program dc-fanout itself when a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv("DC_FANOUT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestHostsFanOut to targets on two other hosts.
func TestHostsFanOut(t *testing.T) {
	lab.RequireHosts(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	self, err := os.Executable()
	require.NoError(t, err)
	const each = 100
	var hosts []string
	var serving sync.WaitGroup
	defer func() {
		cancel()
		serving.Wait() // they log
	}()
	for n := 1; n < 3; n++ {
		hosts = append(hosts, lab.Addrs()[n].String())
		serving.Go(func() {
			r, err := lab.Host(n).Exec(ctx, "env", "DC_FANOUT=1", self, "serve", strconv.Itoa(each))
			if ctx.Err() == nil {
				t.Logf("host %d ended: %v %s", n, err, r.Stderr)
			}
		})
	}
	c := exec.CommandContext(ctx, self, hosts...)
	c.Env = append(os.Environ(), "DC_FANOUT=1")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	number := func(expr string) int {
		m := regexp.MustCompile(expr).FindSubmatch(out)
		require.NotNil(t, m, expr)
		n, err := strconv.Atoi(string(m[1]))
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 2*each, number(`(\d+) targets on 2 hosts`))
	require.Equal(t, 17, number(`(\d+) queue pairs`))
	require.GreaterOrEqual(t, number(`(\d+) attaches`), 2*each)
	require.Regexp(t, `"target \d+ of lab[12]"`, string(out))
}
