package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/cmd/internal/version"
	"github.com/goverbs/goverbs/internal/procs"
)

func main() {
	if version.Asked(os.Args[1:]) {
		fmt.Println(version.Of("rdmacached"))
		return
	}
	ctx := untilSignal()
	procs.SpareProcs() // for the gateway, which calls the kernel all the time
	if len(os.Args) > 1 && os.Args[1] == "proxy" {
		c, err := parseProxy(os.Args[2:], os.Stderr)
		if err == nil {
			err = proxy(ctx, c, slog.New(slog.NewTextHandler(os.Stderr, nil)), nil)
		}
		end(err)
		return
	}
	if len(os.Args) > 1 && operators[os.Args[1]] {
		end(operate(ctx, os.Args[1], os.Args[2:], os.Stderr))
		return
	}
	path := flag.String("config", "", "the configuration `file`")
	check := flag.Bool("check", false, "check the configuration and the files that it names, without the device, and end")
	flag.Parse()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	end(start(ctx, *path, *check, hup))
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process: a
// drain may take minutes.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

func end(err error) {
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rdmacached:", err)
		os.Exit(exitStatus(err))
	}
}

// exitStatus returns EX_CONFIG of sysexits.h for a wrong configuration: rdmacached.service does not try again then.
func exitStatus(err error) int {
	if _, ok := errors.AsType[configError](err); ok {
		return 78
	}
	return 1
}

func start(ctx context.Context, path string, check bool, hup <-chan os.Signal) error {
	if path == "" || flag.NArg() > 0 {
		return errors.New("usage: rdmacached -config file [-check], rdmacached drain -config file [id], rdmacached proxy -server address (rdmacached proxy -h has its flags), or rdmacached -version")
	}
	c, err := readConfig(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.Log}))
	if check {
		return c.check(path, log)
	}
	if err = c.check(path, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	return run(ctx, &c, log, hup, nil)
}

// drain is how long clients of the gateway have for what they have begun.
const drain = 10 * time.Second

// service is what runs.
type service struct {
	rdma     serving         // cache, or tenants
	cache    *server.Server  // the gateway's; nil if it has none, and there are tenants
	key      []byte          // of cache, if it has one
	tenants  *server.Tenants // or nil
	member   *cluster.Member // or nil
	gateway  *gateway.Server // or nil
	listener net.Listener    // the gateway's
	metrics  net.Listener    // or nil

	config   *config
	log      *slog.Logger
	begun    time.Time
	stopping atomic.Bool
}

// run serves until ctx ends. A signal from hup has the gateway's files and the tenants' keys
// read again. started is called when all listens; it may be nil.
func run(ctx context.Context, c *config, log *slog.Logger, hup <-chan os.Signal, started func(*service)) (err error) {
	d := &service{config: c, log: log, begun: time.Now()}
	defer func() {
		for _, l := range []net.Listener{d.listener, d.metrics} {
			if err != nil && l != nil {
				_ = l.Close()
			}
		}
	}()
	if err = d.listen(ctx); err != nil {
		if ctx.Err() != nil {
			log.Info("stopped before it served", "error", err)
			return nil
		}
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "listen" {
			return fmt.Errorf("listen: %w", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	if c.Gateway.Listen != "" {
		g, err := c.gateway()
		if err != nil {
			return err
		}
		g.Store, g.Logger = d.cache, log
		if d.gateway, err = gateway.New(g); err != nil {
			return err
		}
		if d.listener, err = net.Listen("tcp", c.Gateway.Listen); err != nil {
			return fmt.Errorf("gateway.listen: %w", err)
		}
	}
	if c.Metrics != "" {
		if d.metrics, err = net.Listen("tcp", c.Metrics); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	if err = d.join(); err != nil { // last: for other members, a server that ends without Drain is dead only after a TTL
		return err
	}
	if started != nil {
		started(d)
	}
	d.each(func(tenant string, s *server.Server) {
		st := s.Stats()
		log.Info("serving", "address", s.Addr().String(), "tenant", tenant, "memory", st.Memory, "epoch", st.Epoch)
	})
	d.tell(daemon.SdNotifyReady)
	return d.serve(ctx, hup)
}

// end leaves the records to the next life, also when this one has not really begun: it
// has taken them from the last.
func (d *service) end() error {
	errs := []error{d.closeMember()}
	d.each(func(tenant string, s *server.Server) {
		n, err := s.Save()
		switch errs = append(errs, err); {
		case err != nil:
			d.log.Error("the records are lost", "tenant", tenant, "error", err)
		case n > 0:
			d.log.Info("records are left to the next life", "tenant", tenant, "records", n)
		}
	})
	return errors.Join(append(errs, d.rdma.Close())...)
}

// tell says to systemd, if it started this process and wants to know, how things are.
func (d *service) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		d.log.Warn("systemd was not told", "state", state, "error", err)
	}
}

// reload reads the gateway's certificate and users again. If they are not right, what was
// there stays.
func (d *service) reload() {
	if d.gateway == nil {
		return
	}
	g, err := d.config.gateway()
	if err != nil {
		d.log.Error("the gateway's files stay as they were", "error", err)
		return
	}
	d.gateway.Admit(g.TLS, g.Users)
	d.log.Info("the gateway's files were read again")
}

func (d *service) serve(ctx context.Context, hup <-chan os.Signal) error {
	all, ctx := errgroup.WithContext(ctx)
	// RDMA clients go last: the gateway's are let finish first.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	all.Go(func() error {
		if err := d.rdma.Serve(serving); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	if d.gateway != nil {
		all.Go(func() error {
			if err := d.gateway.Serve(d.listener); !errors.Is(err, gateway.ErrClosed) {
				return err
			}
			return nil
		})
	}
	all.Go(func() error { return d.follow(ctx) })
	web := webServer(nil)
	if d.metrics != nil {
		web.Handler = d.web()
		all.Go(func() error {
			if err := web.Serve(d.metrics); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	all.Go(func() error {
		for {
			select {
			case <-hup:
				d.reload()
				d.rekey(ctx)
				continue
			case <-ctx.Done():
			}
			break
		}
		d.log.Info("stopping")
		d.stopping.Store(true)
		d.tell(daemon.SdNotifyStopping)
		drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		var err error
		if d.gateway != nil {
			err = d.gateway.Shutdown(drained)
		}
		d.leave(context.WithoutCancel(ctx))
		stop()
		if d.metrics != nil {
			err = errors.Join(err, web.Close())
		}
		return err
	})
	return all.Wait()
}
