// Command read is a small RDMA program: a server that offers some memory, and a
// client that READs it without the server's CPU taking part.
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

// persist calls f until it succeeds, five times at most: a connection may fail while it is set up
// and while it is used.
func persist(f func() error) (err error) {
	for range 5 {
		if err = f(); err == nil {
			break
		}
	}
	return err
}

const port = "7471"

// serve offers memory to all clients.
func serve(ctx context.Context) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	memory := make([]byte, 4096)
	copy(memory, "the server's memory")
	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
	wait := func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return ctx.Err() }
	return verbs.ServeLinks(ctx, l, cfg, wait, func(client net.Addr, err error) { log.Print(client, ": ", err) })
}

// read reads the server's memory without its CPU.
func read(ctx context.Context, d *net.Dialer, server string) (string, error) {
	link, err := verbs.DialLink(ctx, server, verbs.LinkConfig{Dialer: d})
	if err != nil {
		return "", err
	}
	defer link.Close()
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		return "", err
	}
	r, err := link.Requester()
	if err != nil {
		return "", err
	}
	if len(link.Regions()) != 1 {
		return "", errors.New("the server offers no memory")
	}
	if err := r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 19)); err != nil {
		return "", err
	}
	return string(mr.Bytes()[:19]), nil
}
