// Command demo shows RDMA between two hosts, in acts. First one offers a small table of
// counters in its memory, and the other READs, WRITEs and changes it atomically
// without the first one's program running, and does the same over TCP for
// comparison. Then one has two servers of a cache, and the other a service that reads
// through them by RDMA under load, in turns with memcached over TCP, while one server is
// killed and comes back: a live table shows both. A third act is a cluster of three servers on
// an etcd, of which one joins, one is drained, one is killed and comes back under load.
//
//	make demo
//
// runs it on two virtual hosts with Soft-RoCE, without the third act, "make demo CLUSTER=1" that act
// on three, and "make demo SIM=1" all in processes with simulated devices. By hand: "demo server" on one machine, "demo client 10.0.0.1" on another.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port    = "7472"
	slots   = 512 // counters in the table
	size    = 8 * slots
	rounds  = 500
	adds    = 100
	message = "written by RDMA from the other host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	role, addr := "", ""
	switch {
	case len(os.Args) == 3 && os.Args[1] == "cache":
		return serveCache(ctx, os.Args[2])
	case len(os.Args) == 5 && os.Args[1] == "cluster":
		c, stop, err := localCrew(ctx, os.Args[2:])
		if err != nil {
			return err
		}
		defer stop()
		return c.show(ctx)
	case len(os.Args) == 2 && os.Args[1] == "cluster":
		c, err := labCrew(ctx)
		if err != nil {
			return err
		}
		return c.show(ctx)
	case len(os.Args) == 2 && os.Args[1] == "etcd": // where the hosts of the lab, which have no network, find it
		path, err := etcd.Path(ctx)
		if err == nil {
			fmt.Println(path)
		}
		return err
	case len(os.Args) == 2 && os.Args[1] == "server", len(os.Args) == 1 && os.Getenv("LAB_HOST") == "1":
		role = "server"
	case len(os.Args) == 3 && (os.Args[1] == "server" || os.Args[1] == "client"):
		role, addr = os.Args[1], os.Args[2]
	case len(os.Args) == 1 && os.Getenv("LAB_HOST") == "0":
		role, addr = "client", "10.77.0.2"
	default:
		return errors.New("usage: demo server [ADDRESS] | demo client ADDRESS")
	}
	if err := table(ctx, role, addr); err != nil {
		return err
	}
	if role == "server" {
		return serveStage(ctx, addr)
	}
	return visit(ctx, addr)
}

// table is the first act.
func table(ctx context.Context, role, addr string) error {
	connect := func() (net.Conn, error) { return dialPort(ctx, addr, port) }
	if role == "server" {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		defer l.Close()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		connect = l.Accept
	}
	for try := 1; ; try++ {
		conn, err := connect()
		if err != nil {
			return err
		}
		err = meet(ctx, conn, role)
		if err == nil || ctx.Err() != nil || try == tries {
			return err
		}
		fmt.Printf("once more, from the start: %v\n", err)
	}
}

// tries is how often both try: on a lossy wire a connection can fail.
const tries = 10

// meet is the demonstration over one connection.
func meet(ctx context.Context, conn net.Conn, role string) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p, err := open(ctx, conn)
	if err != nil {
		return err
	}
	defer p.close()
	if role == "server" {
		return p.serve()
	}
	if err := p.demonstrate(ctx); err != nil {
		return err
	}
	_, err = conn.Write([]byte{done})
	return err
}

// What the client asks for by TCP.
const (
	fetch = 0 // the first 64 bytes
	done  = 1 // nothing any more
)

// peer is one side, connected to the other.
type peer struct {
	conn    net.Conn
	cq      *verbs.CQ
	mr      *verbs.MR
	batch   *verbs.Batch
	remote  verbs.Region
	closers []io.Closer
}

func open(ctx context.Context, conn net.Conn) (p *peer, err error) {
	p = &peer{conn: conn}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	list, err := verbs.Devices()
	if err != nil {
		return p, err
	}
	if len(list) == 0 {
		return p, verbs.ErrNoDevice
	}
	dev, err := verbs.Open(list[0].Name, verbs.DeviceConfig{})
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, dev)
	pd, err := dev.AllocPD()
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, pd)
	if p.cq, err = dev.CreateCQ(verbs.CQConfig{}); err != nil {
		return p, err
	}
	p.closers = append(p.closers, p.cq)
	if p.mr, err = pd.AllocMR(size, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}); err != nil {
		return p, err
	}
	p.closers = append(p.closers, p.mr)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: p.cq})
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, qp)
	if p.batch, err = qp.NewBatch(8); err != nil {
		return p, err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return p, err
	}
	local.Regions = []verbs.Region{p.mr.Region()}
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return p, err
	}
	if len(remote.Regions) != 1 {
		return p, errors.New("the peer offers no memory")
	}
	p.remote = remote.Regions[0]
	fmt.Printf("%s %v is connected to queue pair %#x at %v\n", dev.Name(), qp.GID().GID, remote.QPN, remote.GID)
	return p, qp.Connect(remote, verbs.ConnectConfig{})
}

func (p *peer) close() {
	for i := range p.closers {
		p.closers[len(p.closers)-1-i].Close()
	}
}

// serve serves the TCP half of the comparison; RDMA needs no service.
func (p *peer) serve() error {
	buf := make([]byte, 64)
	for {
		if _, err := io.ReadFull(p.conn, buf[:1]); err != nil {
			return fmt.Errorf("the client has gone: %w", err)
		}
		if buf[0] == done {
			break
		}
		copy(buf, p.mr.Bytes())
		if _, err := p.conn.Write(buf); err != nil {
			return err
		}
	}
	sum, err := p.mr.Load64(0)
	if err != nil {
		return err
	}
	fmt.Printf("my counter is %d, and in my memory I find %q; I did nothing\n", sum, p.mr.Bytes()[64:64+len(message)])
	return nil
}

// do posts what the batch holds and waits for its one completion.
func (p *peer) do(ctx context.Context) error {
	if _, err := p.batch.Post(); err != nil {
		return err
	}
	var wcs [1]verbs.WC
	if _, err := p.cq.Wait(ctx, wcs[:]); err != nil {
		return err
	}
	return wcs[0].Err()
}

func (p *peer) demonstrate(ctx context.Context) error {
	copy(p.mr.Bytes()[64:], message)
	p.batch.Write(1, verbs.Signaled, p.remote.At(64), p.mr.SGE(64, len(message)))
	if err := p.do(ctx); err != nil {
		return err
	}
	clear(p.mr.Bytes())
	p.batch.Read(2, verbs.Signaled, p.remote.At(64), p.mr.SGE(0, len(message)))
	if err := p.do(ctx); err != nil {
		return err
	}
	fmt.Printf("WRITE and READ back: %q\n", p.mr.Bytes()[:len(message)])
	for range adds {
		p.batch.FetchAdd(3, verbs.Signaled, p.remote.At(0), 1, p.mr.SGE(0, 8))
		if err := p.do(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("%d FETCH_ADDs: the last one found %d\n", adds, verbs.Uint64(p.mr.Bytes(), 0))
	p.batch.CmpSwap(4, verbs.Signaled, p.remote.At(0), adds, 4242, p.mr.SGE(0, 8))
	if err := p.do(ctx); err != nil {
		return err
	}
	fmt.Printf("CMP_SWAP %d -> 4242 found %d\n", adds, verbs.Uint64(p.mr.Bytes(), 0))

	rdma, err := measure(func() error {
		p.batch.Read(5, verbs.Signaled, p.remote.At(0), p.mr.SGE(0, 64))
		return p.do(ctx)
	})
	if err != nil {
		return err
	}
	buf := make([]byte, 64)
	tcp, err := measure(func() error {
		if _, err := p.conn.Write([]byte{fetch}); err != nil {
			return err
		}
		_, err := io.ReadFull(p.conn, buf)
		return err
	})
	if err != nil {
		return err
	}
	if got := binary.NativeEndian.Uint64(buf); got != 4242 {
		return fmt.Errorf("TCP answered %d", got)
	}
	fmt.Printf("64 bytes from the other host, %d times, wall clock:\n", rounds)
	for _, r := range []struct {
		name string
		h    *hdrhistogram.Histogram
	}{{"RDMA READ, waiting for events", rdma}, {"TCP request and answer", tcp}} {
		fmt.Printf("  %-30s p50 %7.1f us   p99 %8.1f us\n", r.name, float64(r.h.ValueAtQuantile(50))/1e3, float64(r.h.ValueAtQuantile(99))/1e3)
	}
	return nil
}

func measure(f func() error) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, int64(time.Minute), 3)
	for range rounds {
		start := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		h.RecordValue(int64(time.Since(start)))
	}
	return h, nil
}
