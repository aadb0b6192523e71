package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// environment is what the posing program needs to know.
func (s *setup) environment() []string {
	return append(os.Environ(), "COMPAT_SERVER="+s.server, "COMPAT_PRELOAD="+s.preload)
}

// serve starts a server that poses as memcached on some port of the loopback address.
func (s *setup) serve(ctx context.Context, log string) (port int, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	port = l.Addr().(*net.TCPAddr).Port
	if err = l.Close(); err != nil {
		return 0, nil, err
	}
	f, err := os.Create(filepath.Join(s.logs, log+"-server.log"))
	if err != nil {
		return 0, nil, err
	}
	c := exec.CommandContext(ctx, s.posing, "-l", "127.0.0.1", "-p", strconv.Itoa(port))
	c.Env, c.Stdout, c.Stderr = s.environment(), f, f
	if err := c.Start(); err != nil {
		return 0, nil, errors.Join(err, f.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	stop = func() {
		_ = c.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = c.Process.Kill()
			<-ended
		}
		_ = f.Close()
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for range 600 {
		if conn, err := net.Dial("tcp", address); err == nil {
			return port, stop, conn.Close()
		}
		select {
		case err := <-ended:
			ended <- err
			stop()
			return 0, nil, fmt.Errorf("the server has ended: %w (%s)", err, f.Name())
		case <-time.After(100 * time.Millisecond):
		}
	}
	stop()
	return 0, nil, errors.New("the server does not listen")
}

// stats returns what a server says to a stats command.
func stats(port int, command string) (map[string]string, error) {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return nil, err
	}
	out, lines := map[string]string{}, bufio.NewScanner(conn)
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 3)
		switch {
		case f[0] == "END":
			return out, nil
		case f[0] != "STAT" || len(f) != 3:
			return out, fmt.Errorf("%s: %q", command, lines.Text())
		}
		out[f[1]] = f[2]
	}
	return out, errors.Join(lines.Err(), errors.New("no END"))
}
