//go:build linux

package cache_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/testproc"
)

// stuck is when a test is taken for one that hangs.
const stuck = 60 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	t.Cleanup(cancel)
	return ctx
}

// quiet is a lease so long that no message goes by itself while a test runs.
const quiet = 10 * time.Minute

// serve starts a server at the far end of the wire, and sees that nothing of the test's is
// left when that has closed.
func serve(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	lab.NoLeftovers(t)
	return listen(t, cfg)
}

// listen starts one beside another one.
func listen(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	ends := lab.Require(t, 2)
	if cfg.Memory == 0 {
		cfg.Memory = 4 << 20 // registering more takes emulated machines long
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) // of tests that fail
	}
	s, err := server.Listen(context.Background(), netip.AddrPortFrom(ends[1].Addr, 0).String(), cfg)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, server.ErrClosed)
		require.NoError(t, s.Close(), "once more")
	})
	return s
}

// near is a client's configuration at the near end of the wire.
func near(t testing.TB, cfg cache.Config) cache.Config {
	ends := lab.Require(t, 2)
	cfg.Dialer = &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}
	return cfg
}

func dial(t testing.TB, address string, cfg cache.Config) *cache.Client {
	t.Helper()
	c, err := cache.Dial(within(t), address, near(t, cfg))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "once more")
	})
	return c
}

// whole waits until the client has the map.
func whole(t testing.TB, c *cache.Client, entries int) {
	t.Helper()
	var st cache.Stats
	for end := time.Now().Add(stuck); !st.Whole || st.Entries != entries; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%+v", st)
		st = c.Stats()
	}
}

func key(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// process is a server in a process of its own.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	out     *bufio.Reader // what it says
	ended   <-chan error
}

const (
	role  = "CACHE_TEST_SERVER"
	lease = "CACHE_TEST_LEASE" // of the server; empty means a second
)

// TestMain is a server if it is told so.
func TestMain(m *testing.M) {
	address := os.Getenv(role)
	if address == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := server.Config{Memory: 8 << 20, Lease: time.Second, DC: server.DCConfig{Responders: 2}, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	var err error
	if d := os.Getenv(lease); d != "" {
		cfg.Lease, err = time.ParseDuration(d)
	}
	var s *server.Server
	if err == nil {
		s, err = server.Listen(ctx, address, cfg)
	}
	if err == nil {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGUSR1)
		go tellFootprint(asked)
		fmt.Println("listens on", s.Addr())
		err = s.Serve(ctx)
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start starts a server process at an address, and waits until it listens.
func start(t *testing.T, address string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), role+"="+address)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.ended, err = testproc.Start(p.cmd)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	p.out = bufio.NewReader(out)
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	p.address = strings.TrimSpace(strings.TrimPrefix(line, "listens on "))
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// stop stops the process.
func (p *process) stop() {
	p.t.Helper()
	testproc.Stop(p.t, p.cmd.Process)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// allocatesNothing demands of a call that it does not allocate. The server is in this process too, and has
// things of its own to do now and then: a call that allocates does so each time.
func allocatesNothing(t testing.TB, runs int, call func()) {
	t.Helper()
	least := 1e9
	for range 10 {
		if least = min(least, testing.AllocsPerRun(runs, call)); least == 0 {
			return
		}
	}
	require.Zero(t, least)
}

// hitEach GETs key 1 so often, which has this value and flags of 7.
func hitEach(t testing.TB, c *cache.Client, n int, value []byte) {
	t.Helper()
	ctx, dst := within(t), make([]byte, 1000)
	for range n {
		it, err := c.GetInto(ctx, key(1), dst)
		require.NoError(t, err)
		require.Equal(t, value, it.Value)
		require.Equal(t, uint32(7), it.Flags)
	}
}
