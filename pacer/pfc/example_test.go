package pfc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/pacer/pfc"
)

// counts is a source of counters of the program's own.
type counts struct{ reads int }

func (c *counts) Read() (pfc.Counters, error) {
	if c.reads++; c.reads > 2 {
		return pfc.Counters{}, pfc.ErrNone
	}
	return pfc.Counters{Received: uint64(c.reads)}, nil
}

// A pacer that is held while the link partner asks for pauses. The counters are usually those of
// a network interface: see [pfc.Netdev].
func Example() {
	p, err := pacer.New(pacer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	err = pfc.Watch(context.Background(), p, &counts{}, pfc.Config{}) // until the counters end
	fmt.Println(err)
	// Output: no counters of pauses
}
