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
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		return new(server).listen(ctx, l)
	}
	if len(args) < 3 {
		return errors.New("usage: kv [server put key value | server get key]")
	}
	c, err := dial(ctx, net.JoinHostPort(args[0], port), verbs.LinkConfig{})
	if err != nil {
		return err
	}
	defer c.Close()
	if args[1] == "put" && len(args) == 4 {
		return c.put(ctx, args[2], args[3])
	}
	value, err := c.get(ctx, args[2])
	if err == nil {
		fmt.Println(value)
	}
	return err
}
