package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/procs"
	"github.com/goverbs/goverbs/verbs"
)

const (
	gatewayRole    = "cache-gateway"
	localProxyRole = "cache-local-proxy"

	gatewayTime = 2 * time.Second
	gatewaySize = 64
	crowded     = 50 // connections
)

// serveGateway is a server with a gateway at a TCP address, on a simulated device.
func serveGateway(ctx context.Context, at string) error {
	s, err := server.Listen(ctx, "127.0.0.1:0", server.Config{Device: "mlx5_0"})
	if err != nil {
		return err
	}
	return serveStore(s, "tcp", at)
}

// serveLocalProxy is a proxy at a unix socket with a client that READs by an initiator, on the device of the server,
// which is in the same process.
func serveLocalProxy(ctx context.Context, at string) error {
	s, err := server.Listen(ctx, "127.0.0.1:0", server.Config{Device: "mlx5_0", DC: server.DCConfig{Responders: 1, Backend: dc.Hardware}})
	if err != nil {
		return err
	}
	go s.Serve(ctx)
	d, err := verbs.Open("mlx5_0", verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	pd, err := d.AllocPD()
	if err != nil {
		return err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 2, Backend: dc.Hardware})
	if err != nil {
		return err
	}
	c, err := cache.Dial(ctx, s.Addr().String(), cache.Config{DC: i, RequireRDMA: true})
	if err != nil {
		return err
	}
	return serveStore(store{c}, "unix", at)
}

// serveStore serves as rdmacached does.
func serveStore(s gateway.Store, network, at string) error {
	procs.SpareProcs()
	g, err := gateway.New(gateway.Config{Store: s})
	if err != nil {
		return err
	}
	l, err := net.Listen(network, at)
	if err != nil {
		return err
	}
	return g.Serve(l)
}

// loaded is a server of memcached's protocol with connections to it.
type loaded struct {
	daemon
	network string
	conns   []*tcpClient
}

// newLoaded starts a program and connects to it. The program is given the address, or the path of a socket.
func newLoaded(network string, program func(at string) *exec.Cmd) (*loaded, error) {
	at := "127.0.0.1:" + rig.NextPort()
	if network == "unix" {
		dir, err := os.MkdirTemp("", "gateway")
		if err != nil {
			return nil, err
		}
		at = filepath.Join(dir, "s")
	}
	d, err := start(at, program(at))
	if err != nil {
		return nil, err
	}
	l := &loaded{daemon: d, network: network}
	for range crowded {
		c, err := soon(func() (*tcpClient, error) { return dialTCP(&net.Dialer{}, network, at) })
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, c)
	}
	return l, l.conns[0].set(key(gatewaySize), make([]byte, gatewaySize))
}

func memcachedAt(at string) *exec.Cmd {
	args := []string{"-s", at}
	if host, port, err := net.SplitHostPort(at); err == nil {
		args = []string{"-l", host, "-p", port}
	}
	return exec.Command("memcached", append(args, "-U", "0", "-u", "root", "-m", "64", "-t", "2")...)
}

// simulated runs a role of this program on simulated devices.
func simulated(library, role string) func(at string) *exec.Cmd {
	return func(at string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "-role", role, "-at", at)
		cmd.Env = append(os.Environ(), "SIMHCA=mlx5:ipv4", "LD_PRELOAD="+library)
		return cmd
	}
}

// exchange is a command and how its reply begins and how long it is.
type exchange struct {
	command, begins string
	length          int
}

func exchanges() (get, set exchange) {
	k, v := key(gatewaySize), strings.Repeat("v", gatewaySize)
	head := fmt.Sprintf("VALUE %s 0 %d\r\n", k, gatewaySize)
	get = exchange{fmt.Sprintf("get %s\r\n", k), head, len(head) + gatewaySize + len("\r\nEND\r\n")}
	set = exchange{fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", k, gatewaySize, v), "STORED\r\n", len("STORED\r\n")}
	return get, set
}

// under sends one command after the other on each of n connections, from one thread, and returns commands per
// second, the server's CPU in microseconds for each, and the 99th percentile of their times in microseconds.
func (l *loaded) under(ctx context.Context, n int, e exchange) ([]float64, error) {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(poll)
	sent, have := make([]time.Time, n), make([]int, n)
	send := func(i int) error {
		sent[i], have[i] = time.Now(), 0
		l.conns[i].out = append(l.conns[i].out[:0], e.command...)
		return l.conns[i].write()
	}
	before, err := l.cpu()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	for i := range n {
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, l.conns[i].fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, err
		}
		if err := send(i); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	events := make([]unix.EpollEvent, n)
	for left := n; left > 0; {
		ready := 1 // of one connection the read waits
		if n > 1 {
			if ready, err = unix.EpollWait(poll, events, 10_000); errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || ready == 0 {
				return nil, errors.Join(errors.New("no reply within ten seconds"), err)
			}
		}
		for _, ev := range events[:ready] {
			i := int(ev.Fd)
			c := l.conns[i]
			m, err := c.read(c.in[have[i]:])
			if have[i] += m; err != nil {
				return nil, err
			}
			if have[i] < e.length {
				continue
			}
			if got := string(c.in[:have[i]]); have[i] > e.length || !strings.HasPrefix(got, e.begins) {
				return nil, fmt.Errorf("%q for %q", got, e.command)
			}
			now := time.Now()
			took = append(took, now.Sub(sent[i]))
			if now.Sub(begin) > gatewayTime || ctx.Err() != nil {
				left--
				continue
			}
			if err := send(i); err != nil {
				return nil, err
			}
		}
	}
	seconds := time.Since(begin).Seconds()
	after, err := l.cpu()
	slices.Sort(took)
	count := float64(len(took))
	return []float64{count / seconds, (after - before) / count / 1e3, float64(took[len(took)*99/100]) / 1e3}, errors.Join(err, ctx.Err())
}

// gateways compares gateway and proxy, on simulated devices of the library, with Debian's memcached.
func gateways(library string) (list []harness.Benchmark) {
	const theirName = "memcached -t 2"
	lazily := func(network string, program func(string) *exec.Cmd) *rig.Once[*loaded] {
		return rig.Lazy(func() (*loaded, error) { return newLoaded(network, program) })
	}
	row := func(name string, ours, theirs *rig.Once[*loaded], n int, e exchange, rate float64, more ...harness.Figure) {
		under := func(l *loaded, ctx context.Context) ([]float64, error) { return l.under(ctx, n, e) }
		figures := append([]harness.Figure{{Name: name, Unit: "op/s", Target: measure.AtLeast(rate)}}, more...)
		for i := range figures {
			figures[i].Of, figures[i].Baseline = "ours", theirName
		}
		list = append(list, harness.Benchmark{Name: name, Judged: []string{harness.Wall}, Figures: figures,
			Sides: []harness.Side{{Name: "ours", Run: ours.Values(under)}, {Name: theirName, Run: theirs.Values(under)}}})
	}
	get, set := exchanges()
	ours, theirs := lazily("tcp", simulated(library, gatewayRole)), lazily("tcp", memcachedAt)
	for _, of := range []struct {
		name string
		exchange
	}{{"get", get}, {"set", set}} {
		name := fmt.Sprintf("gateway_%s_%dB", of.name, gatewaySize)
		cpu := func(name string) harness.Figure {
			return harness.Figure{Name: name + "_cpu", Unit: "us", Value: 1, Target: measure.AtMost(1.3)}
		}
		row(name, ours, theirs, 1, of.exchange, 0.9, cpu(name))
		crowd := fmt.Sprintf("%s_%d", name, crowded)
		row(crowd, ours, theirs, crowded, of.exchange, 0.9, cpu(crowd), harness.Figure{Name: crowd + "_p99", Unit: "us", Value: 2, Target: measure.AtMost(1.5)})
	}
	row("proxy_get_64B", lazily("unix", simulated(library, localProxyRole)), lazily("unix", memcachedAt), 1, get, 0.5,
		harness.Figure{Name: "proxy_get_64B_cpu", Unit: "us", Value: 1})
	return list
}
