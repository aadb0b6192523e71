// Command stream is an echo service over RDMA that a program written for
// net.Conn can use as it is:
//
//	stream server 10.77.0.2:7472
//	stream client 10.77.0.2:7472
//
// Addresses are IP addresses of RDMA interfaces; librdmacm finds the device.
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

	"github.com/goverbs/goverbs/verbs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
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
	cm, err := verbs.OpenCM(verbs.CMConfig{})
	if err != nil {
		return err
	}
	if args[0] == "server" {
		return errors.Join(serve(ctx, cm, args[1]), cm.Close())
	}
	return errors.Join(talk(ctx, cm, args[1]), cm.Close())
}

// serve answers one client with what it says.
func serve(ctx context.Context, cm *verbs.CM, address string) error {
	l, err := verbs.StreamListen(cm, address, verbs.StreamConfig{})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	conn, err := l.Accept()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return errors.Join(echo(conn), conn.Close(), l.Close())
}

func echo(conn net.Conn) error {
	_, err := io.Copy(conn, conn)
	return err
}

func talk(ctx context.Context, cm *verbs.CM, address string) error {
	s, err := verbs.StreamDial(ctx, cm, address, verbs.StreamConfig{})
	if err != nil {
		return err
	}
	answers := bufio.NewScanner(s)
	for _, line := range []string{"hello", "this went by RDMA WRITE"} {
		if _, err := fmt.Fprintln(s, line); err != nil {
			return errors.Join(err, s.Close())
		}
		if !answers.Scan() {
			return errors.Join(answers.Err(), s.Close())
		}
		fmt.Println(answers.Text())
	}
	return errors.Join(answers.Err(), s.CloseWrite(), s.Close())
}
