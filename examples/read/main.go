// Command read is a small RDMA program: a server that offers some memory to one
// client after the other, and a client that READs it without the server's CPU
// taking part.
//
//	read            # on the server
//	read 10.77.0.2  # on the client
//
// Both use the device of the address that the client's connection has on them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"

	"github.com/goverbs/goverbs/verbs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 1 {
		return serve(ctx)
	}
	var text string
	err := persist(func() (err error) {
		text, err = read(ctx, &net.Dialer{}, net.JoinHostPort(os.Args[1], port))
		return err
	})
	if err == nil {
		fmt.Printf("read by RDMA: %q\n", text)
	}
	return err
}

// persist begins again when a connection failed while it was used.
func persist(f func() error) error {
	for try := 1; ; try++ {
		err := f()
		var broken verbs.WCStatus
		if !errors.As(err, &broken) || try == 5 {
			return err
		}
	}
}

const port = "7471"

// serve offers memory to one client after the other.
func serve(ctx context.Context) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := offer(ctx, conn); err != nil {
			log.Print(err)
		}
	}
}

// offer lets a client read memory until it hangs up.
func offer(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	link, err := verbs.NewLink(ctx, conn, verbs.LinkConfig{Setup: func(l *verbs.Link) (verbs.Offer, error) {
		mr, err := l.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
		if err != nil {
			return verbs.Offer{}, err
		}
		copy(mr.Bytes(), "the server's memory")
		return verbs.Offer{Regions: []verbs.Region{mr.Region()}}, nil
	}})
	if err != nil {
		return err
	}
	defer link.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.Read(make([]byte, 1)) // until the client is done
	return nil
}

// read reads the server's memory without its CPU.
func read(ctx context.Context, d *net.Dialer, server string) (string, error) {
	conn, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	link, err := verbs.NewLink(ctx, conn, verbs.LinkConfig{})
	if err != nil {
		return "", err
	}
	defer link.Close()
	if len(link.Regions()) != 1 || link.Regions()[0].Length < 19 {
		return "", errors.New("the server offers no memory")
	}
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		return "", err
	}
	r, err := link.Requester()
	if err != nil {
		return "", err
	}
	if err := r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 19)); err != nil {
		return "", err
	}
	return string(mr.Bytes()[:19]), nil
}
