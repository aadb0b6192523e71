// Command stream is an echo service over RDMA that a program written for
// net.Conn can use as it is:
//
//	stream server 10.77.0.2:7472
//	stream client 10.77.0.2:7472
//
// Addresses are IP addresses of RDMA interfaces; librdmacm finds the device. The
// server goes on until it is interrupted. A client reconnects when its connection breaks, and
// sends the lines again that were not echoed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != "server" && args[0] != "client" {
		return errors.New("usage: stream server|client ADDRESS:PORT")
	}
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	if args[0] == "server" {
		l, err := stream.Listen(cm, args[1], stream.Config{})
		if err != nil {
			return errors.Join(err, cm.Close())
		}
		return errors.Join(serve(ctx, l), cm.Close())
	}
	c := &client{cm: cm, address: args[1]}
	for _, line := range []string{"hello", "this went by RDMA WRITE"} {
		answer, err := c.ask(ctx, line)
		if err != nil {
			return errors.Join(err, c.close(), cm.Close())
		}
		fmt.Println(answer)
	}
	return errors.Join(c.close(), cm.Close())
}

// serve echoes what each client sends, until the context ends. It does not depend on
// RDMA: any net.Listener would do.
func serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return errors.Join(err, l.Close()) // and wait for it
		}
		clients.Go(func() {
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			io.Copy(conn, conn)
			conn.Close()
		})
	}
}

// client asks one line at a time.
type client struct {
	cm      *rdmacm.CM
	address string
	cfg     stream.Config
	patient time.Duration // with a reply; 0 means 5 s

	conn    net.Conn
	answers *bufio.Reader
	dials   int
}

// ask sends a line until it is echoed, or the context ends: on a wire that
// loses packets for longer than the device retries, connections break.
func (c *client) ask(ctx context.Context, line string) (string, error) {
	for {
		answer, err := c.tryToAsk(ctx, line)
		if err == nil {
			return answer, nil
		}
		c.close() // broken: its error says nothing new
		if ctx.Err() != nil {
			return "", errors.Join(ctx.Err(), err)
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, verbs.ErrUnsupported) {
			return "", err
		}
	}
}

func (c *client) tryToAsk(ctx context.Context, line string) (string, error) {
	patient := c.patient
	if patient == 0 {
		patient = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	if c.conn == nil {
		s, err := stream.Dial(ctx, c.cm, c.address, c.cfg)
		if err != nil {
			return "", err
		}
		c.conn, c.answers = s, bufio.NewReader(s)
		c.dials++
	}
	end, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		return "", err
	}
	answer, err := c.answers.ReadString('\n')
	if err != nil {
		return "", err
	}
	if answer = answer[:len(answer)-1]; answer != line {
		return "", fmt.Errorf("asked %q, answered %q", line, answer)
	}
	return answer, nil
}

func (c *client) close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}
