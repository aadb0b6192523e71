package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/testproc"
	"github.com/goverbs/goverbs/verbs"
)

const (
	stagePort = "7473" // where the host of the servers takes commands for them
	memory    = 16 << 20
	records   = 400
	valueSize = 1 << 10
)

// stage is the host of the servers: two of the cache, each a process, and memcached.
type stage struct {
	addresses []string
	caches    []*process
	memcached *process // nil: there is none here
}

// serveStage runs the servers until the service on the other host needs them no more. They listen at
// addr, or if it is empty at the address of an RDMA device.
func serveStage(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, stagePort))
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s := &stage{}
	defer s.close()
	if err := s.open(ctx, addr); err != nil {
		return err
	}
	if s.memcached == nil {
		s.addresses[2] = "-"
	}
	if _, err := fmt.Fprintln(conn, strings.Join(s.addresses, " ")); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if err := s.obey(ctx, lines.Text()); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(conn, "done"); err != nil {
			return err
		}
		if lines.Text() == "end" {
			fmt.Println("the cache's servers end; their processors had no part in a hit")
			return nil
		}
	}
	return errors.Join(errors.New("the service has gone"), lines.Err())
}

// obey carries out a command of the service: one of the caches is killed, or comes back.
func (s *stage) obey(ctx context.Context, line string) error {
	what, which, _ := strings.Cut(line, " ")
	if what == "end" {
		return nil
	}
	i, err := strconv.Atoi(which)
	if err != nil || i < 0 || i >= len(s.caches) {
		return fmt.Errorf("the service wants %q", line)
	}
	if what == "kill" {
		return s.caches[i].kill()
	}
	s.caches[i], err = start(ctx, s.addresses[i], serves, os.Args[0], "cache", s.addresses[i])
	return err
}

// open starts the servers.
func (s *stage) open(ctx context.Context, host string) error {
	if host == "" {
		at, err := deviceAddress(ctx)
		if err != nil {
			return err
		}
		host = at.String()
	}
	for _, port := range []string{"7481", "7482", "11211"} {
		s.addresses = append(s.addresses, net.JoinHostPort(host, port))
	}
	for _, at := range s.addresses[:2] {
		c, err := start(ctx, at, serves, os.Args[0], "cache", at)
		if err != nil {
			return err
		}
		s.caches = append(s.caches, c)
	}
	program, err := exec.LookPath("memcached")
	if err != nil {
		fmt.Println("memcached is not installed here: the cache stands alone")
		return nil
	}
	s.memcached, err = start(ctx, s.addresses[2], listens, program, "-l", host, "-p", "11211", "-U", "0", "-u", "root", "-m", "64")
	return err
}

func (s *stage) close() {
	for _, c := range append(s.caches, s.memcached) {
		if c != nil {
			c.kill()
		}
	}
}

// deviceAddress returns an address of this host that belongs to an RDMA device.
func deviceAddress(ctx context.Context) (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().Is4() {
			continue
		}
		if _, err := verbs.LookupAddr(ctx, p.Addr()); err == nil {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("no IPv4 address of an RDMA device")
}

// process is a child, which ends with this process.
type process struct {
	*os.Process
	ended <-chan error // how it has ended, once, and closed then
}

// start starts a process, and waits until it is ready at its address.
func start(ctx context.Context, at string, ready func(ctx context.Context, at string) error, program string, args ...string) (*process, error) {
	p, err := launch(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, 20*time.Second, at, ready, p.ended); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", program, err), p.kill())
	}
	return p, nil
}

// launch starts a process.
func launch(ctx context.Context, program string, args ...string) (*process, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Stderr = os.Stderr
	ended, err := testproc.Start(c)
	if err != nil {
		return nil, err
	}
	return &process{c.Process, ended}, nil
}

// await waits until a process is ready at its address. It returns an error when the process has ended.
func await(ctx context.Context, limit time.Duration, at string, ready func(ctx context.Context, at string) error, ended <-chan error) error {
	for end := time.Now().Add(limit); ; {
		err := ready(ctx, at)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("it is not ready: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case err := <-ended:
			return fmt.Errorf("it has ended: %w", cmp.Or(err, io.EOF))
		}
	}
}

func listens(ctx context.Context, at string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	return conn.Close()
}

// serves returns an error if a server of the cache takes no clients yet: while it opens its device it listens too, and resets
// connections.
func serves(ctx context.Context, at string) error {
	c, err := cache.Dial(ctx, at, cache.Config{})
	if err != nil {
		return err
	}
	return c.Close()
}

// kill kills a process, which has no time to say goodbye. One that has ended is no error.
func (p *process) kill() error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// serveCache runs one server of the cache.
func serveCache(ctx context.Context, at string) error {
	s, err := server.Listen(ctx, at, server.Config{Memory: memory})
	if err != nil {
		return err
	}
	return errors.Join(s.Serve(ctx), s.Close())
}

// director is the service's end of the connection to the host of the servers.
type director struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// direct connects to the host of the servers, and returns their addresses.
func direct(ctx context.Context, host string) (d *director, caches []string, memcached string, err error) {
	conn, err := dialPort(ctx, host, stagePort)
	if err != nil {
		return nil, nil, "", err
	}
	d = &director{conn, bufio.NewScanner(conn)}
	if !d.lines.Scan() {
		return nil, nil, "", errors.Join(io.ErrUnexpectedEOF, d.lines.Err(), conn.Close())
	}
	words := strings.Fields(d.lines.Text())
	if len(words) != 3 {
		return nil, nil, "", errors.Join(fmt.Errorf("the servers' host says %q", d.lines.Text()), conn.Close())
	}
	if words[2] == "-" {
		words[2] = ""
	}
	return d, words[:2], words[2], nil
}

// have has something done, and waits for it.
func (d *director) have(what string) error {
	if _, err := fmt.Fprintln(d.conn, what); err != nil {
		return err
	}
	if !d.lines.Scan() {
		return errors.Join(io.ErrUnexpectedEOF, d.lines.Err())
	}
	return nil
}
