package dcprom_test

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/dc/dcprom"
)

// The counters of an initiator in a registry, which promhttp serves.
func ExampleNew() {
	var i *dc.Initiator // dc.NewInitiator
	r := prometheus.NewRegistry()
	r.MustRegister(dcprom.New(i))
}
