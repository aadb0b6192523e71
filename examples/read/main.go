// Command read is a small RDMA program: a server that offers some memory to one
// client after the other, and a client that READs it without the server's CPU
// taking part.
//
//	read            # on the server
//	read 10.77.0.2  # on the client
//
// Both use the first RDMA device, or the one that $RDMA_DEVICE names.
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
	name := os.Getenv("RDMA_DEVICE")
	if list, err := verbs.Devices(); err != nil {
		return err
	} else if name == "" && len(list) > 0 {
		name = list[0].Name
	}
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	mr, err := pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	if err != nil {
		return err
	}
	defer mr.Close()
	if len(os.Args) == 1 {
		copy(mr.Bytes(), "the server's memory")
		return serve(ctx, pd, mr)
	}
	return persist(func() error { return read(ctx, pd, mr, net.JoinHostPort(os.Args[1], port)) })
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

// serve offers the memory to one client after the other.
func serve(ctx context.Context, pd *verbs.PD, mr *verbs.MR) error {
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
		_, end, _, err := connect(ctx, pd, mr, conn)
		if err != nil {
			log.Print(err)
			continue
		}
		conn.Read(make([]byte, 1)) // until the client is done
		end()
	}
}

// read reads the server's memory without its CPU.
func read(ctx context.Context, pd *verbs.PD, mr *verbs.MR, server string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return err
	}
	qp, end, remote, err := connect(ctx, pd, mr, conn)
	if err != nil {
		return err
	}
	defer end()
	if len(remote.Regions) != 1 || remote.Regions[0].Length < 19 {
		return errors.New("the server offers no memory")
	}
	batch, err := qp.NewBatch(1)
	if err != nil {
		return err
	}
	batch.Read(1, verbs.Signaled, remote.Regions[0].At(0), mr.SGE(0, 19))
	if _, err := batch.Post(); err != nil {
		return err
	}
	var wcs [1]verbs.WC
	if _, err := qp.cq.Wait(ctx, wcs[:]); err != nil {
		return err
	}
	if err := wcs[0].Err(); err != nil {
		return err
	}
	fmt.Printf("read by RDMA: %q\n", mr.Bytes()[:19])
	return nil
}

// queue is a queue pair and its completion queue.
type queue struct {
	*verbs.QP
	cq *verbs.CQ
}

// connect makes a queue pair and connects it to the one at the other end of a
// TCP connection. end closes them all.
func connect(ctx context.Context, pd *verbs.PD, mr *verbs.MR, conn net.Conn) (q queue, end func(), remote verbs.Endpoint, err error) {
	end = func() {
		if q.QP != nil {
			q.QP.Close()
		}
		if q.cq != nil {
			q.cq.Close()
		}
		conn.Close()
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if q.cq, err = pd.Device().CreateCQ(verbs.CQConfig{}); err != nil {
		return q, end, remote, err
	}
	if q.QP, err = pd.CreateQP(verbs.QPConfig{SendCQ: q.cq}); err != nil {
		return q, end, remote, err
	}
	local, err := q.Endpoint()
	if err != nil {
		return q, end, remote, err
	}
	local.Regions = []verbs.Region{mr.Region()}
	if remote, err = verbs.Exchange(ctx, conn, local); err != nil {
		return q, end, remote, err
	}
	return q, end, remote, q.Connect(remote, verbs.ConnectConfig{})
}
