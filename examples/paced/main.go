// Command paced shows what bulk READs do to a READ of 64 bytes, without a pacer and
// with one.
//
//	paced            # on the server
//	paced 10.77.0.2  # on the client
//
// The slower the client's link is beside the server's, the larger is the difference. In
// the lab, with two hosts that a wire of some 20 MB/s connects,
//
//	make build/rxelab && go build -o build/paced ./examples/paced
//	build/rxelab -debian 13 -topo hosts=2 -all -- sh -c 'case $LAB_HOST in
//		0) sleep 2; build/paced 10.77.0.2;;
//		*) timeout 30 build/paced || true;; esac'
//
// says for instance
//
//	without: 19.92 MB/s bulk, 0 connections broken, 47 READs of 64 bytes: p50 56.31ms, p99 370.66ms
//	with:    11.85 MB/s bulk, 0 connections broken, 397 READs of 64 bytes: p50 5.7ms, p99 48.09ms
//
// READs of 256 KiB that are cut into pieces of 16 cost each host's one processor more there.
// With Slice: 64 << 10 bulk has 15.9 MB/s, and the p99 is 106 ms.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port      = "7473"
	bulkSize  = 256 << 10
	bulkLinks = 8
	probeSize = 64
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
	without, with, err := compare(ctx, &net.Dialer{}, net.JoinHostPort(os.Args[1], port), 5*time.Second)
	if err != nil {
		return err
	}
	fmt.Println("without:", without)
	fmt.Println("with:   ", with)
	return nil
}

// serve offers memory to all clients.
func serve(ctx context.Context) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(make([]byte, bulkSize), verbs.RemoteRead)}
	wait := func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return ctx.Err() }
	return verbs.ServeLinks(ctx, l, cfg, wait, func(client net.Addr, err error) { log.Print(client, ": ", err) })
}

// result is the result of the readers, paced or not.
type result struct {
	bytes int64
	span  time.Duration
	lost  int             // readers with a connection that broke: the link loses more than is sent again
	took  []time.Duration // by the small READs
}

func (r result) percentile(p int) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.took))
	return sorted[len(sorted)*p/100]
}

func (r result) String() string {
	return fmt.Sprintf("%.2f MB/s bulk, %d connections broken, %d READs of %d bytes: p50 %v, p99 %v", float64(r.bytes)/r.span.Seconds()/1e6, r.lost, len(r.took), probeSize,
		r.percentile(50).Round(10*time.Microsecond), r.percentile(99).Round(10*time.Microsecond))
}

// compare runs the same readers without a pacer and with one.
func compare(ctx context.Context, d *net.Dialer, server string, span time.Duration) (without, with result, err error) {
	if without, err = read(ctx, d, server, span, nil); err != nil {
		return without, with, err
	}
	// All that is needed: the threshold finds itself, and what is small has a part of
	// it of its own.
	p, err := pacer.New(pacer.Config{Tune: true})
	if err != nil {
		return without, with, err
	}
	with, err = read(ctx, d, server, span, p)
	return without, with, errors.Join(err, p.Close())
}

// reader READs and waits.
type reader func(ctx context.Context, from verbs.Remote, into verbs.SGE) error

// read has bulk readers work for a while beside one of 64 bytes.
func read(ctx context.Context, d *net.Dialer, server string, span time.Duration, p *pacer.Pacer) (result, error) {
	r := result{span: span}
	var bytes atomic.Int64
	var connecting sync.WaitGroup // all begin together
	connecting.Add(bulkLinks + 1)
	each := func(f func(end time.Time, read reader, from verbs.Remote, mr *verbs.MR) error) error {
		connected := sync.OnceFunc(connecting.Done)
		defer connected() // or failed
		return on(ctx, d, server, p, func(read reader, from verbs.Remote, mr *verbs.MR) error {
			connected()
			connecting.Wait()
			return f(time.Now().Add(span), read, from, mr)
		})
	}
	errs := make(chan error, bulkLinks)
	var wg sync.WaitGroup
	for range bulkLinks {
		wg.Go(func() {
			errs <- each(func(end time.Time, read reader, from verbs.Remote, mr *verbs.MR) error {
				for time.Now().Before(end) {
					if err := read(ctx, from, mr.SGE(0, bulkSize)); err != nil {
						return err
					}
					bytes.Add(bulkSize)
				}
				return nil
			})
		})
	}
	err := each(func(end time.Time, read reader, from verbs.Remote, mr *verbs.MR) error {
		for time.Now().Before(end) {
			begin := time.Now()
			if err := read(ctx, from, mr.SGE(0, probeSize)); err != nil {
				return err
			}
			r.took = append(r.took, time.Since(begin))
			time.Sleep(2 * time.Millisecond)
		}
		return nil
	})
	wg.Wait()
	close(errs)
	failed := []error{err}
	for err := range errs {
		failed = append(failed, err)
	}
	for i, err := range failed {
		if errors.Is(err, verbs.WCRetryExceeded) {
			r.lost++
			failed[i] = nil
		}
	}
	r.bytes = bytes.Load()
	return r, errors.Join(failed...)
}

// on connects, and calls f with a reader of the server's memory.
func on(ctx context.Context, d *net.Dialer, server string, p *pacer.Pacer, f func(read reader, from verbs.Remote, mr *verbs.MR) error) (err error) {
	link, err := verbs.DialLink(ctx, server, verbs.LinkConfig{Dialer: d})
	if err != nil {
		return err
	}
	defer link.Close()
	mr, err := link.AllocMR(bulkSize, verbs.MRConfig{})
	if err != nil {
		return err
	}
	if len(link.Regions()) != 1 {
		return errors.New("the server offers no memory")
	}
	from := link.Regions()[0].At(0)
	if p == nil {
		r, err := link.Requester()
		if err != nil {
			return err
		}
		return f(r.Read, from, mr)
	}
	q, err := p.Wrap(link.QP(), link.CQ(), pacer.FlowConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	return f(func(ctx context.Context, from verbs.Remote, into verbs.SGE) error { return q.Read(ctx, from, into) }, from, mr)
}
