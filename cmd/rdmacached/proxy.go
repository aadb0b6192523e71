package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/accept"
)

// proxyConfig is a proxy's command line.
type proxyConfig struct {
	servers string // addresses, with commas between
	listen  string
	from    netip.Addr
	timeout time.Duration
	tenant  string
	key     string // a file
	metrics string
	mapSize size
	maxItem size
	rdma    bool // or nothing
}

// Set is [flag.Value]'s.
func (s *size) Set(text string) error { return s.UnmarshalJSON([]byte(text)) }

func (s *size) String() string { return strconv.Itoa(int(*s)) }

func parseProxy(args []string, out io.Writer) (c proxyConfig, err error) {
	fs := flag.NewFlagSet("rdmacached proxy", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&c.servers, "server", "", "the `address` of rdmacached for RDMA clients; or several, a,b,c: of members of a cluster some, of other servers all")
	fs.StringVar(&c.listen, "listen", "127.0.0.1:11211", "the `address`, or path of a unix socket, for memcached's protocol")
	fs.TextVar(&c.from, "from", netip.Addr{}, "this host's `address` to connect from")
	fs.DurationVar(&c.timeout, "timeout", time.Second, "how long a command waits for the server")
	fs.StringVar(&c.tenant, "tenant", "", "the `name` of the tenant that this client belongs to")
	fs.StringVar(&c.key, "key", "", "the `file` of the key")
	fs.StringVar(&c.metrics, "metrics", "", "the `address` for Prometheus's /metrics, and /healthz")
	fs.Var(&c.mapSize, "map", "how many `bytes` the map may take, such as 64MiB (default as the server advises)")
	fs.Var(&c.maxItem, "max", "how many `bytes` an item may have, as memcached counts them (default 1MiB)")
	fs.BoolVar(&c.rdma, "rdma", false, "connect by RDMA only, never by TCP")
	switch err := fs.Parse(args); {
	case err != nil:
		return c, err
	case c.servers == "" || fs.NArg() > 0 || c.timeout <= 0:
		return c, errors.New("usage: rdmacached proxy -server address[,address]... [-listen address] [-from address] [-timeout 1s] [-tenant name] [-key file] [-map size] [-max size] [-rdma] [-metrics address]")
	}
	return c, nil
}

// remote is the servers that are far away, as a gateway's store.
type remote struct {
	client  *cache.Cluster
	timeout time.Duration
	limit   atomic.Pointer[limit]
}

// limit is the context of the commands that begin within an eighth of the timeout: a timer for each
// command would cost as much as the command.
type limit struct {
	ctx, of context.Context
	until   time.Time // commands may begin
}

// Do asks for as long as a client of memcached waits, or an eighth longer. Commands for keys of a server
// without a connection fail at once, until it is back.
func (r *remote) Do(ctx context.Context, q *kv.Request) (kv.Reply, error) {
	return r.client.Do(r.limited(ctx), q)
}

func (r *remote) limited(ctx context.Context) context.Context {
	now := time.Now()
	l := r.limit.Load()
	if l == nil || l.of != ctx || now.After(l.until) {
		l = &limit{of: ctx, until: now.Add(r.timeout / 8)}
		var cancel context.CancelFunc
		l.ctx, cancel = context.WithDeadline(ctx, l.until.Add(r.timeout))
		context.AfterFunc(l.ctx, cancel)
		r.limit.Store(l)
	}
	return l.ctx
}

// StatLines returns what the client counts, among them what came by READ and what by a message.
func (r *remote) StatLines() [][2]string {
	var n cache.Stats
	connected := 0
	transports := make(map[string]bool)
	for _, one := range r.client.Stats() {
		if one.Connected {
			transports[string(one.Transport)] = true
		}
		if one.Transport == cache.RDMA {
			connected++
		}
		n.Hits += one.Hits
		n.Probes += one.Probes
		n.Reads += one.Reads
		n.Calls += one.Calls
		n.Sessions += one.Sessions
		n.Entries += one.Entries
		n.MapBytes += one.MapBytes
	}
	line := func(name string, v uint64) [2]string { return [2]string{name, strconv.FormatUint(v, 10)} }
	return [][2]string{
		{"transport", strings.Join(slices.Sorted(maps.Keys(transports)), ",")},
		line("rdma_connected", uint64(connected)), line("rdma_read_hits", n.Hits), line("rdma_probes", n.Probes), line("rdma_reads", n.Reads), line("rdma_calls", n.Calls),
		line("rdma_sessions", n.Sessions), line("rdma_map_entries", uint64(n.Entries)), line("rdma_map_bytes", uint64(n.MapBytes)),
	}
}

// proxy serves until ctx ends. started is called when it listens; it may be nil.
func proxy(ctx context.Context, c proxyConfig, log *slog.Logger, started func(net.Addr, *cache.Cluster, *gateway.Server)) (err error) {
	cfg := cache.Config{Logger: log, Tenant: c.tenant, MapBytes: int(c.mapSize), RequireRDMA: c.rdma}
	if c.key != "" {
		if cfg.Key, err = readKey(c.key); err != nil {
			return err
		}
	}
	if c.from.IsValid() {
		cfg.Dialer = &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0))}
	}
	client, err := cache.DialCluster(ctx, strings.Split(c.servers, ","), cache.ClusterConfig{Config: cfg})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	g, err := gateway.New(gateway.Config{Store: &remote{client: client, timeout: c.timeout}, MaxItem: int(c.maxItem), Logger: log})
	if err != nil {
		return err
	}
	l, err := listenLocal(ctx, c.listen)
	if err != nil {
		return err
	}
	if c.metrics != "" {
		m, err := net.Listen("tcp", c.metrics)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		web := webServer(proxyWeb(client, g, log))
		go func() {
			if err := web.Serve(m); !errors.Is(err, http.ErrServerClosed) {
				log.Error("there are no metrics any more", "error", err)
			}
		}()
		defer func() { err = errors.Join(err, web.Close()) }()
		log.Info("metrics", "address", m.Addr().String())
	}
	if started != nil {
		started(l.Addr(), client, g)
	}
	log.Info("serving", "address", l.Addr().String(), "server", c.servers)
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("systemd was not told", "error", err)
	}
	stopped := make(chan error, 1)
	end := context.AfterFunc(ctx, func() {
		drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		stopped <- g.Shutdown(drained)
	})
	if err := g.Serve(l); !end() && errors.Is(err, gateway.ErrClosed) {
		return <-stopped
	} else {
		return errors.Join(err, g.Close())
	}
}

// listenLocal listens on an address, or on a unix socket, as [accept.ListenUnix] does.
func listenLocal(ctx context.Context, at string) (net.Listener, error) {
	var lc net.ListenConfig
	if !strings.HasPrefix(at, "/") {
		return lc.Listen(ctx, "tcp", at)
	}
	return accept.ListenUnix(ctx, at)
}
