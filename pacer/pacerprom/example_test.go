package pacerprom_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/pacer/pacerprom"
)

// The counters of a pacer in a registry, which promhttp serves.
func ExampleNew() {
	p, err := pacer.New(pacer.Config{Threshold: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	r := prometheus.NewRegistry()
	r.MustRegister(pacerprom.New(p))
	families, err := r.Gather()
	fmt.Println(len(families) > 0, err)
	// Output: true <nil>
}
