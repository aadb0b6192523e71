package rdmacm_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// A client READs memory that a server offers as in the example of CM.ServeLinks.
func ExampleCM_DialLink() {
	ctx := context.Background()
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer cm.Close()
	link, err := cm.DialLink(ctx, "10.77.0.2:7473", verbs.LinkConfig{})
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

// A server offers memory that clients may READ, until the first of them goes.
func ExampleCM_ServeLinks() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer cm.Close()
	listener, err := cm.Listen("10.77.0.2:7473", rdmacm.ListenConfig{})
	if err != nil {
		log.Fatal(err)
	}
	memory := make([]byte, 4096)
	copy(memory, "the server's memory")
	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
	serve := func(ctx context.Context, link *verbs.Link) error {
		<-ctx.Done() // the client has gone
		fmt.Println("good bye")
		stop()
		return ctx.Err()
	}
	failed := func(client net.Addr, err error) { log.Print(client, ": ", err) }
	if err := cm.ServeLinks(ctx, listener, cfg, serve, failed); err != nil {
		log.Fatal(err)
	}
	// Prints: good bye
}
