//go:build linux

package lab_test

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
)

// A device test: "go test -exec 'build/rxelab -debian 13'" runs it in a guest.
func Example() {
	test := func(t *testing.T) {
		lab.NoLeftovers(t) // first: the check comes when all else is cleaned up
		ends := lab.Require(t, 2)
		lab.ImpairWire(t, lab.Impairment{Delay: time.Millisecond, Loss: 0.01})
		t.Log("between", ends[0].Addr, "and", ends[1].Addr, "a packet takes a millisecond each way, and 1 % is lost")
	}
	_ = test // TestOfMine in a file of tests
}
