package verbs_test

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A client READs memory of a server that called NewLink with a Setup like that of
// the next example.
func ExampleNewLink() {
	ctx := context.Background()
	conn, err := net.Dial("tcp", "10.77.0.2:7471")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	link, err := verbs.NewLink(ctx, conn, verbs.LinkConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer link.Close()
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := link.Requester()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 64)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", mr.Bytes()[:64])
}

// A server offers memory that clients may read.
func ExampleLinkConfig_setup() {
	cfg := verbs.LinkConfig{Setup: func(l *verbs.Link) (verbs.Offer, error) {
		mr, err := l.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
		if err != nil {
			return verbs.Offer{}, err
		}
		copy(mr.Bytes(), "the server's memory")
		return verbs.Offer{Regions: []verbs.Region{mr.Region()}}, nil
	}}
	_ = cfg // for NewLink, with a connection that was accepted
}

// Goroutines that share a queue pair each get their own answer.
func ExampleRequester_FetchAdd() {
	var qp *verbs.QP         // connected
	var counter verbs.Region // of the peer
	ctx := context.Background()
	r, err := verbs.NewRequester(qp, verbs.RequesterConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			before, err := r.FetchAdd(ctx, counter.At(0), 1)
			fmt.Println(before, err) // nobody else has the same number
		})
	}
	wg.Wait()
}
