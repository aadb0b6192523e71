package driver_test

import (
	"log"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// A protocol that has a queue pair's sends to itself, and learns when it has ended.
func Example() {
	var qp *verbs.QP
	release, err := driver.OwnSends(qp, "my protocol")
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	driver.OnEnd(qp, func(cause error) { log.Print("the queue pair has ended: ", cause) })
}
