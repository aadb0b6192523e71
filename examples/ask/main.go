// Command ask asks a service questions by reliable datagrams, in any order and without a
// connection: the server keeps no state of its clients beyond the transport's.
//
//	ask serve               # on the server
//	ask 10.77.0.2 1000      # on clients: 1000 questions, 32 at a time
//
// A client gets the server's address, 26 bytes, by TCP. Both use the device of their
// own address of this connection.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port  = "7474"
	depth = 32 // questions under way
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve(ctx, "")
	case len(os.Args) == 3:
		n, nerr := strconv.Atoi(os.Args[2])
		if err = nerr; err == nil {
			var took time.Duration
			took, err = ask(ctx, &net.Dialer{}, os.Args[1], n)
			fmt.Printf("%d answers, each within %v\n", n, took)
		}
	default:
		err = errors.New("usage: ask serve, or ask HOST QUESTIONS")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// open opens an endpoint on the device of a connection's own address, and returns it and a
// function that closes everything.
func open(ctx context.Context, own net.Addr, cfg srd.Config) (*srd.Endpoint, func() error, error) {
	at, err := netip.ParseAddrPort(own.String())
	if err != nil {
		return nil, nil, err
	}
	local, err := verbs.LookupAddr(ctx, at.Addr().Unmap())
	if err != nil {
		return nil, nil, err
	}
	dev, err := verbs.Open(local.Device, verbs.DeviceConfig{})
	if err != nil {
		return nil, nil, err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	cfg.PD, cfg.GID = pd, local.GID
	ep, err := srd.Open(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, pd.Close(), dev.Close())
	}
	return ep, func() error { return errors.Join(ep.Close(), pd.Close(), dev.Close()) }, nil
}

// serve replies to questions until ctx ends. It opens an endpoint for each of its own
// addresses to which a client connects.
func serve(ctx context.Context, host string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	opened := make(map[string]*srd.Endpoint)
	var all []func() error
	defer func() {
		for _, end := range all {
			if err := end(); err != nil {
				log.Print(err)
			}
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		own, _, _ := net.SplitHostPort(conn.LocalAddr().String())
		ep := opened[own]
		if ep == nil {
			var end func() error
			if ep, end, err = open(ctx, conn.LocalAddr(), srd.Config{}); err == nil {
				opened[own], all = ep, append(all, end)
				go answer(ctx, ep)
			}
		}
		if err != nil {
			log.Print(err)
		} else if b, err := ep.Addr().MarshalBinary(); err == nil {
			conn.Write(b)
		}
		conn.Close()
	}
}

// answer replies to each question with its square.
func answer(ctx context.Context, ep *srd.Endpoint) {
	q, err := ep.NewQueue(srd.QueueConfig{})
	if err != nil {
		log.Print(err)
		return
	}
	go func() { // the client gets the error of a reply that is not delivered
		var cs [depth]srd.Completion
		for {
			if _, err := q.Wait(ctx, cs[:]); err != nil {
				return
			}
		}
	}()
	var ms [depth]srd.Message
	for {
		n, err := ep.Receive(ctx, ms[:])
		if err != nil {
			return
		}
		for _, m := range ms[:n] {
			if len(m.Data) != 8 {
				continue
			}
			x := binary.BigEndian.Uint64(m.Data)
			reply := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, x), x*x)
			if _, err := q.Post(srd.Request{To: m.From, Data: [][]byte{reply}}); err != nil {
				log.Print(err)
			}
		}
		ep.Release(ms[:n]...)
	}
}

// ask asks n questions, and returns how long the slowest took.
func ask(ctx context.Context, from *net.Dialer, host string, n int) (slowest time.Duration, err error) {
	conn, err := from.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var b [srd.AddrLen]byte
	var server srd.Addr
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, err
	}
	if err := server.UnmarshalBinary(b[:]); err != nil {
		return 0, err
	}
	ep, end, err := open(ctx, conn.LocalAddr(), srd.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()

	asked := make(map[uint64]time.Time)
	var ms [depth]srd.Message
	q, err := ep.NewQueue(srd.QueueConfig{})
	if err != nil {
		return 0, err
	}
	next, got := 0, 0
	for got < n {
		for ; next < n && next-got < depth; next++ {
			x := uint64(next)
			asked[x] = time.Now()
			if _, err := q.Post(srd.Request{To: server, Data: [][]byte{binary.BigEndian.AppendUint64(nil, x)}}); err != nil {
				return 0, err
			}
		}
		k, err := ep.Receive(ctx, ms[:])
		if err != nil {
			return 0, err
		}
		for _, m := range ms[:k] {
			if len(m.Data) != 16 {
				return 0, fmt.Errorf("an answer of %d bytes", len(m.Data))
			}
			x, square := binary.BigEndian.Uint64(m.Data), binary.BigEndian.Uint64(m.Data[8:])
			begin, ok := asked[x]
			if !ok || square != x*x {
				return 0, fmt.Errorf("the answer to %d is %d", x, square)
			}
			delete(asked, x)
			slowest = max(slowest, time.Since(begin))
			got++
		}
		ep.Release(ms[:k]...)
		if err := reap(ctx, q, k); err != nil {
			return 0, err
		}
	}
	return slowest, nil
}

// reap takes n completions. It is called after as many replies came, so every question must have
// been delivered.
func reap(ctx context.Context, q *srd.SendQueue, n int) error {
	var cs [depth]srd.Completion
	for n > 0 {
		k, err := q.Wait(ctx, cs[:n])
		if err != nil {
			return err
		}
		for _, c := range cs[:k] {
			if err := c.Status.Err(); err != nil {
				return err
			}
		}
		n -= k
	}
	return nil
}
