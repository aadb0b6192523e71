package cache

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/internal/testproc"
)

const (
	serverRole = "cache-server"
	smallRole  = "cache-server-small-pages"
	busyRole   = "cache-server-polling"
)

// polling is for how long servers and clients poll that do not park at once.
const polling = 100 * time.Microsecond

// serve is the server, until it is killed.
func serve(ctx context.Context, at string) error { return serveWith(ctx, at, server.Config{}) }

// serveBusy is a server that polls for longer.
func serveBusy(ctx context.Context, at string) error {
	return serveWith(ctx, at, server.Config{PollFor: polling})
}

func serveWith(ctx context.Context, at string, cfg server.Config) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go free(asked)
	cfg.Memory, cfg.Logger = 16<<20, slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := server.Listen(ctx, at, cfg)
	if err != nil {
		return err
	}
	return s.Serve(ctx)
}

// serveSmall is a server with memory of small pages alone. A huge one is the memory of many
// clients, and when Go's heap gets one is chance.
func serveSmall(ctx context.Context, at string) error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return serve(ctx, at)
}

// free gives all that this process needs no more back to the kernel whenever it is asked to, and says
// so. What finalizers let go is there no more the second time.
func free(asked <-chan os.Signal) {
	for range asked {
		debug.FreeOSMemory()
		debug.FreeOSMemory()
		fmt.Println(freed)
	}
}

const freed = "freed"

// daemon is a server's process, which ends with this one.
type daemon struct {
	process *os.Process
	ended   <-chan error  // how the process has ended, once, and closed then
	at      string        // address
	out     *bufio.Reader // what it says
}

func start(at string, cmd *exec.Cmd) (daemon, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return daemon{}, err
	}
	ended, err := testproc.Start(cmd)
	if err != nil {
		return daemon{}, err
	}
	return daemon{cmd.Process, ended, at, bufio.NewReader(out)}, nil
}

// stop kills the process. Passes that are run again need not: it ends with this one.
func (d daemon) stop() {
	_ = d.process.Kill()
	<-d.ended
}

// dialer is one from the near end: from another address it would go by the loopback
// device.
func dialer() (*net.Dialer, error) {
	c, _, err := rig.Endpoints()
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: c.Addr.AsSlice()}}, err
}

// soon tries until a server that was started listens.
func soon[C any](dial func() (C, error)) (c C, err error) {
	for range 100 {
		if c, err = dial(); err == nil {
			return c, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return c, err
}

// served is a server of ours with a client that has its map.
type served struct {
	daemon
	client *cache.Client
	parked func() (*cache.Client, error) // one that waits for events at once
	busy   func() (*cache.Client, error) // and one that polls for longer
}

func newServed() (*served, error) { return newServedAs(serverRole) }

func newServedAs(role string) (*served, error) {
	s := &served{}
	_, far, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := rig.Warm("/proc/self/exe"); err != nil {
		return nil, err
	}
	at := net.JoinHostPort(far.Addr.String(), rig.NextPort())
	if s.daemon, err = start(at, exec.Command(self, "-role", role, "-at", at)); err != nil {
		return nil, err
	}
	if s.client, err = soon(func() (*cache.Client, error) { return s.dial(cache.Config{}) }); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if err := s.client.Set(context.Background(), key(size), cache.Item{Value: make([]byte, size)}, 0); err != nil {
			return nil, err
		}
	}
	s.parked = sync.OnceValues(func() (*cache.Client, error) { return s.dial(cache.Config{Spin: -1}) })
	s.busy = sync.OnceValues(func() (*cache.Client, error) { return s.dial(cache.Config{PollFor: polling}) })
	return s, s.whole(s.client, len(sizes))
}

// dial makes a client, by RDMA however long that takes: on the instruction clock the time that a client
// without RequireRDMA has for it may pass while programs are read from files.
func (s *served) dial(cfg cache.Config) (c *cache.Client, err error) {
	cfg.RequireRDMA = true
	if cfg.Dialer, err = dialer(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return cache.Dial(ctx, s.at, cfg)
}

func (s *served) stop() {
	_ = s.client.Close()
	s.daemon.stop()
}

// whole waits until the client's map has so many entries; of thousands a few may be missing, because
// their buckets were full.
func (s *served) whole(c *cache.Client, entries int) error {
	for range 1000 {
		if st := c.Stats(); st.Whole && st.Entries <= entries && st.Entries >= entries-entries/1000 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the map has not come: %+v", c.Stats())
}

// gets returns the median time of a GET in microseconds. All must be hits.
func (s *served) gets(ctx context.Context, c *cache.Client, size int) (float64, error) {
	k, dst := key(size), make([]byte, size)
	if err := s.whole(c, len(sizes)); err != nil {
		return 0, err
	}
	before := c.Stats()
	us, err := rig.Timed(getBlock, func() error {
		_, err := c.GetInto(ctx, k, dst)
		return err
	})
	if st := c.Stats(); err == nil && (st.Hits-before.Hits != getBlock || st.Reads-before.Reads != getBlock) {
		err = fmt.Errorf("%d GETs had %d hits by %d READs", getBlock, st.Hits-before.Hits, st.Reads-before.Reads)
	}
	return us, err
}

// sizes are those of the values that latencies are measured with, by the key of each.
var sizes = []int{64, 1024, 16 << 10}

// key has keySize bytes.
func key(i int) []byte { return fmt.Appendf(nil, "key-%012d", i) }
