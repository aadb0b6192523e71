// Command paced shows what bulk READs do to a READ of 64 bytes, without a pacer and
// with one.
//
//	paced            # on the server
//	paced 10.77.0.2  # on the client
//
// The slower the client's link is beside the server's, the larger is the difference. On two
// hosts of the lab (build/rxelab -topo hosts=2), which a wire of some 20 MB/s connects, it prints
// for instance
//
//	pacer: false, 19.92 MB/s bulk, a READ of 64 bytes takes 56.31ms
//	pacer: true, 11.85 MB/s bulk, a READ of 64 bytes takes 5.7ms
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

const port, bulk, probe, links = "7473", 256 << 10, 64, 8

func main() {
	ctx := context.Background()
	if len(os.Args) == 1 {
		log.Fatal(serve(ctx))
	}
	p, err := pacer.New(pacer.Config{Tune: true}) // the threshold finds itself
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range []*pacer.Pacer{nil, p} {
		if _, err := compete(ctx, &net.Dialer{}, net.JoinHostPort(os.Args[1], port), 5*time.Second, p); err != nil {
			log.Fatal(err)
		}
	}
}

// serve offers memory to all clients.
func serve(ctx context.Context) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(make([]byte, bulk), verbs.RemoteRead)}
	wait := func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return ctx.Err() }
	return verbs.ServeLinks(ctx, l, cfg, wait, func(client net.Addr, err error) { log.Print(client, ": ", err) })
}

// compete has links read much beside one that reads little, and returns how many bytes the former
// have read.
func compete(ctx context.Context, d *net.Dialer, server string, span time.Duration, p *pacer.Pacer) (int64, error) {
	var all errgroup.Group
	var bytes atomic.Int64
	for range links {
		all.Go(func() error {
			return read(ctx, d, server, span, p, bulk, func(time.Duration) { bytes.Add(bulk) })
		})
	}
	var took []time.Duration
	err := read(ctx, d, server, span, p, probe, func(t time.Duration) {
		took = append(took, t)
		time.Sleep(2 * time.Millisecond)
	})
	err = errors.Join(err, all.Wait())
	if slices.Sort(took); len(took) > 0 {
		fmt.Printf("pacer: %t, %.2f MB/s bulk, a READ of %d bytes takes %v\n", p != nil,
			float64(bytes.Load())/span.Seconds()/1e6, probe, took[len(took)/2].Round(10*time.Microsecond))
	}
	return bytes.Load(), err
}

// read READs n bytes again and again for a while, paced by p if there is one.
func read(ctx context.Context, d *net.Dialer, server string, span time.Duration, p *pacer.Pacer, n int, done func(time.Duration)) error {
	link, err := verbs.DialLink(ctx, server, verbs.LinkConfig{Dialer: d})
	if err != nil {
		return err
	}
	defer link.Close()
	mr, err := link.AllocMR(n, verbs.MRConfig{})
	if err != nil {
		return err
	}
	var once func(context.Context, verbs.Remote, verbs.SGE) error
	if p == nil {
		r, err := link.Requester()
		if err != nil {
			return err
		}
		once = r.Read
	} else {
		q, err := p.Wrap(link.QP(), link.CQ(), pacer.FlowConfig{})
		if err != nil {
			return err
		}
		defer q.Close()
		once = func(ctx context.Context, from verbs.Remote, into verbs.SGE) error { return q.Read(ctx, from, into) }
	}
	for end := time.Now().Add(span); time.Now().Before(end); {
		begin := time.Now()
		if err := once(ctx, link.Regions()[0].At(0), mr.SGE(0, n)); errors.Is(err, verbs.WCRetryExceeded) {
			return nil // the network loses more than the device sends again
		} else if err != nil {
			return err
		}
		done(time.Since(begin))
	}
	return nil
}
