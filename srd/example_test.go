package srd_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// A message from one endpoint to another. Here both are in one process; elsewhere the address
// travels by other means, as 26 bytes.
func Example() {
	ctx := context.Background()
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	defer pd.Close()
	from, err := srd.Open(srd.Config{PD: pd})
	if err != nil {
		log.Fatal(err)
	}
	defer from.Close()
	to, err := srd.Open(srd.Config{PD: pd})
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()

	err = from.Send(ctx, to.Addr(), []byte("header, "), []byte("body")) // nil: delivered, once
	if err != nil {
		log.Fatal(err)
	}
	var ms [16]srd.Message
	n, err := to.Receive(ctx, ms[:])
	for _, m := range ms[:n] {
		fmt.Printf("%s\n", m.Data)
	}
	to.Release(ms[:n]...) // their memory is the endpoint's again
	if err != nil {
		log.Fatal(err)
	}
	// Prints: header, body
}

// Many messages at once, and a status for each.
func ExampleSendQueue() {
	ctx := context.Background()
	var ep *srd.Endpoint // from Open
	var peer srd.Addr    // from the peer, by UnmarshalBinary
	q, err := ep.NewQueue(srd.QueueConfig{Service: srd.Ordered, Depth: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	rs := make([]srd.Request, 10)
	for i := range rs {
		rs[i] = srd.Request{ID: uint64(i), To: peer, Data: [][]byte{{byte(i)}}}
	}
	if _, err := q.Post(rs...); err != nil { // fails if the queue has no room for all
		log.Fatal(err)
	}
	cs := make([]srd.Completion, 10)
	for got := 0; got < 10; {
		n, err := q.Wait(ctx, cs)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range cs[:n] {
			fmt.Println(c.ID, c.Status)
		}
		got += n
	}
}
