package pacer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// A connected queue pair whose READs are paced by the pacer of its device.
func Example() {
	ctx := context.Background()
	var qp *verbs.QP // connected, of type RC
	var cq *verbs.CQ // its send completion queue
	var from verbs.Remote
	var mr *verbs.MR

	q, err := pacer.Wrap(qp, cq)
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	// Waits for credit for the response, posts, and waits for the completion.
	if err := q.Read(ctx, from, mr.SGE(0, 1<<20)); err != nil {
		log.Fatal(err)
	}
}

// Credit for responses that the pacer does not see as READs, such as those to messages: another
// flow gets the same bytes only when they are released.
func ExamplePacer_Acquire() {
	p, err := pacer.New(pacer.Config{Threshold: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	credit, err := p.Acquire(context.Background(), 0, 48<<10) // class 0, 48 KiB
	if err != nil {
		log.Fatal(err)
	}
	_, ok, err := p.TryAcquire(0, 48<<10)
	fmt.Println("beside it:", ok, err)
	credit.Release()
	credit, ok, err = p.TryAcquire(0, 48<<10)
	fmt.Println("after it:", ok, err)
	credit.Release()
	// Output:
	// beside it: false <nil>
	// after it: true <nil>
}
