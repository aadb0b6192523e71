// Command ask asks a service questions by reliable datagrams, in any order and without a
// connection: the server keeps no state of its clients beyond the transport's.
//
//	ask serve 10.77.0.2     # on the server, with its own address: prints where it is
//	ask 10.77.0.1 WHERE     # on clients, with their own: 1000 questions, 32 at a time
package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: ask serve OWN, or ask OWN WHERE")
	}
	if os.Args[1] == "serve" {
		log.Fatal(serve(context.Background(), os.Args[2], func(where string) { fmt.Println(where) }))
	} else if err := ask(context.Background(), os.Args[1], os.Args[2], 1000); err != nil {
		log.Fatal(err)
	}
}

// open opens an endpoint on the device of an address of this host, and calls f with it.
func open(ctx context.Context, own string, f func(*srd.Endpoint) error) error {
	addr, err := netip.ParseAddr(own)
	if err != nil {
		return err
	}
	dev, local, err := verbs.OpenFor(ctx, addr, verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	ep, err := srd.Open(srd.Config{PD: pd, GID: local.GID})
	if err != nil {
		return err
	}
	defer ep.Close()
	return f(ep)
}

// serve replies to each question with it and its square, until ctx ends.
func serve(ctx context.Context, own string, started func(where string)) error {
	return open(ctx, own, func(ep *srd.Endpoint) error {
		where, err := ep.Addr().MarshalBinary()
		if err != nil {
			return err
		}
		started(hex.EncodeToString(where))
		return receive(ctx, ep, 8, func(from srd.Addr, b []byte) error {
			x := binary.BigEndian.Uint64(b)
			go ep.Send(ctx, from, binary.BigEndian.AppendUint64(append([]byte{}, b...), x*x)) // a reply
			return nil
		})
	})
}

// receive calls f with each message of n bytes, until that returns io.EOF or an error.
func receive(ctx context.Context, ep *srd.Endpoint, n int, f func(from srd.Addr, b []byte) error) error {
	var ms [32]srd.Message
	for {
		k, err := ep.Receive(ctx, ms[:])
		for _, m := range ms[:k] {
			if len(m.Data) == n && err == nil {
				err = f(m.From, m.Data)
			}
		}
		if ep.Release(ms[:k]...); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// ask asks n questions, and checks that each has its answer, once.
func ask(ctx context.Context, own, where string, n int) error {
	var server srd.Addr
	b, _ := hex.DecodeString(where) // and what is none is too short
	if err := server.UnmarshalBinary(b); err != nil {
		return err
	}
	return open(ctx, own, func(ep *srd.Endpoint) error {
		all, ctx := errgroup.WithContext(ctx)
		all.SetLimit(33)
		all.Go(func() error {
			seen := make(map[uint64]bool)
			return receive(ctx, ep, 16, func(_ srd.Addr, b []byte) error {
				x, square := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
				if seen[x] || square != x*x {
					return fmt.Errorf("the answer to %d is %d", x, square)
				} else if seen[x] = true; len(seen) == n {
					return io.EOF
				}
				return nil
			})
		})
		for x := range n {
			all.Go(func() error { return ep.Send(ctx, server, binary.BigEndian.AppendUint64(nil, uint64(x))) })
		}
		return all.Wait()
	})
}
