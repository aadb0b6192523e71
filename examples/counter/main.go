// Command counter has clients count up one number in another host's memory, each under the
// number's lock, by RDMA alone: no count is lost.
//
//	counter serve            # a host with the number
//	counter 10.77.0.2 200    # on any number of clients: counts 200 up
//
// It uses the first RDMA device with an active port, or the one that $RDMA_DEVICE
// names.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

const port = "7473"

// One slot: a record, and its lock.
var layout = lockoffload.Layout{Slots: 1, Size: 8}

// key keeps other programs away. A program that matters has one that is not in its source.
var key = []byte("counters are no secret")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "serve":
		target, err := lockoffload.Listen(pd, ":"+port, lockoffload.ListenConfig{Layout: layout, Key: key})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return target.Close()
	case len(args) == 2:
		times, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		c, err := lockoffload.Dial(ctx, pd, net.JoinHostPort(args[0], port), lockoffload.DialConfig{Key: key})
		if err != nil {
			return err
		}
		defer c.Close()
		last, unknown, err := count(ctx, c, times)
		fmt.Printf("the number is %d; of %d counts it is unknown whether they are in it\n", last, unknown)
		return err
	}
	return errors.New("usage: counter serve, or counter HOST TIMES")
}

// count counts up the given number of times, and returns the last number that it wrote. A
// connection that breaks off in the middle leaves it unknown whether its count was written:
// that is not repeated, but counted.
func count(ctx context.Context, c *lockoffload.Client, times int) (last uint64, unknown int, err error) {
	for range times {
		_, err := c.Update(ctx, 0, func(old []byte) ([]byte, error) {
			last = number(old) + 1
			return binary.LittleEndian.AppendUint64(nil, last), nil
		})
		if lockoffload.IsConnectionError(err) {
			unknown++
			err = c.Redial(ctx)
		}
		if err != nil {
			return last, unknown, err
		}
	}
	return last, unknown, nil
}

func number(record []byte) uint64 {
	if len(record) == 0 { // never written
		return 0
	}
	return binary.LittleEndian.Uint64(record)
}
