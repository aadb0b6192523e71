// Command stream is an echo service over RDMA that a program written for net.Conn can use as it
// is:
//
//	stream server 10.77.0.2:7472
//	stream client 10.77.0.2:7472
//
// Addresses are IP addresses of RDMA interfaces; librdmacm finds the device. A client reconnects
// when its connection breaks, and sends the line again that was not echoed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: stream server|client ADDRESS:PORT")
	}
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if os.Args[1] == "server" {
		l, err := stream.Listen(cm, os.Args[2], stream.Config{})
		if err != nil {
			log.Fatal(err)
		}
		log.Fatal(serve(ctx, l))
	}
	c := &client{cm: cm, address: os.Args[2], patience: 5 * time.Second}
	if err := c.ask(ctx, "this goes by RDMA WRITE"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("it was echoed")
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

// client sends one line at a time.
type client struct {
	cm       *rdmacm.CM
	address  string
	cfg      stream.Config
	patience time.Duration // with an echo
	conn     *stream.Conn  // nil: none
	dials    int
}

// ask sends a line until it is echoed, or the context ends: on a network that
// loses packets for longer than the device retries, connections break.
func (c *client) ask(ctx context.Context, line string) error {
	for {
		err := c.try(ctx, line)
		if err == nil || ctx.Err() != nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, verbs.ErrUnsupported) {
			return err
		}
		if c.conn != nil {
			c.conn.Close() // broken: its error says nothing new
			c.conn = nil
		}
	}
}

func (c *client) try(ctx context.Context, line string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	if c.conn == nil {
		if c.conn, err = stream.Dial(ctx, c.cm, c.address, c.cfg); err != nil {
			return err
		}
		c.dials++
	}
	end, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		return err
	}
	echo, err := bufio.NewReader(c.conn).ReadString('\n')
	if err == nil && echo != line+"\n" {
		err = fmt.Errorf("sent %q, echoed %q", line, echo)
	}
	return err
}
