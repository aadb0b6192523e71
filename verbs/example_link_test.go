package verbs_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// A client READs memory that a server offers as in the example of ServeLinks.
func ExampleDialLink() {
	ctx := context.Background()
	link, err := verbs.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := link.Requester()
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 19)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mr.Bytes()[:19])
	// Prints: the server's memory
}

// A server offers memory that clients may READ and WRITE, and replies to their
// messages.
func ExampleServeLinks() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listener, err := net.Listen("tcp", "10.77.0.2:7471")
	if err != nil {
		log.Fatal(err)
	}
	memory := make([]byte, 4096)
	copy(memory, "the server's memory")
	cfg := verbs.LinkConfig{
		Setup:   verbs.OfferMemory(memory, verbs.RemoteRead|verbs.RemoteWrite|verbs.RemoteAtomic),
		Receive: &verbs.ReceiverConfig{Size: 64},
	}
	serve := func(ctx context.Context, link *verbs.Link) error {
		r, err := link.Requester()
		if err != nil {
			return err
		}
		for buf := make([]byte, 64); ; {
			m, err := link.Receiver().Receive(ctx, buf)
			if err != nil {
				return err
			}
			fmt.Printf("a client says %s\n", buf[:m.Len])
			if string(buf[:m.Len]) == "good bye" {
				stop()
			}
			if err := r.Do(ctx, verbs.SendImmWR(200)); err != nil {
				return err
			}
		}
	}
	failed := func(client net.Addr, err error) { log.Print(client, ": ", err) }
	if err := verbs.ServeLinks(ctx, listener, cfg, serve, failed); err != nil {
		log.Fatal(err)
	}
	// Prints: a client says hello
	// a client says good bye
}

// A client sends messages, and takes the answers.
func ExampleReceiver() {
	ctx := context.Background()
	link, err := verbs.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{Receive: &verbs.ReceiverConfig{}})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := link.Requester()
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Send(ctx, mr.SGE(0, copy(mr.Bytes(), "hello"))); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, link.Receiver().Size())
	m, err := link.Receiver().Receive(ctx, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Imm)
	// Prints: 200
}

// Goroutines that share a queue pair each get their own reply: sixteen count up
// a word of the server's memory.
func ExampleRequester_FetchAdd() {
	ctx := context.Background()
	link, err := verbs.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	r, err := link.Requester()
	if err != nil {
		log.Fatal(err)
	}
	counter := link.Regions()[0].At(64)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := r.FetchAdd(ctx, counter, 1); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	count, err := r.FetchAdd(ctx, counter, 0)
	fmt.Println(count, err)
	// Prints: 16 <nil>
}

// A list of requests is executed in order, and waited for once: data, then the
// word that says that they are there.
func ExampleRequester_Do() {
	ctx := context.Background()
	link, err := verbs.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	mr, err := link.AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := link.Requester()
	if err != nil {
		log.Fatal(err)
	}
	far := link.Regions()[0]
	copy(mr.Bytes(), "data")
	mr.Bytes()[100] = 1
	err = r.Do(ctx,
		verbs.WriteWR(far.At(1024), mr.SGE(0, 4)),
		verbs.WriteWR(far.At(1028), mr.SGE(100, 1)),
		verbs.ReadWR(far.At(1024), mr.SGE(200, 5)),
	)
	fmt.Printf("%q %v\n", mr.Bytes()[200:205], err)
	// Prints: "data\x01" <nil>
}

// A program that has a connection of its own makes a link of it. Its peer calls
// NewLink too.
func ExampleNewLink() {
	ctx := context.Background()
	conn, err := net.Dial("tcp", "10.77.0.2:7471")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	link, err := verbs.NewLink(ctx, conn, verbs.LinkConfig{Setup: func(l *verbs.Link) (verbs.Offer, error) {
		mr, err := l.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteWrite})
		if err != nil {
			return verbs.Offer{}, err
		}
		return verbs.Offer{Regions: []verbs.Region{mr.Region()}, Data: []byte("write here")}, nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	fmt.Println(len(link.Regions()))
	// Prints: 1
}
