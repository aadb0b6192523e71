package topo_test

import (
	"fmt"

	"github.com/goverbs/goverbs/ci/topo"
)

// The first two hosts of the lab. Links and devices are made as root in a namespace: see Build.
func ExampleAddr() {
	fmt.Println(topo.Addr(0), topo.Addr(1))
	// Output: 10.77.0.1 10.77.0.2
}
