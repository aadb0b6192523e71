package srdprom_test

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/srd/srdprom"
)

// The counters of an endpoint in a registry, which promhttp serves.
func ExampleNew() {
	var ep *srd.Endpoint // srd.Open
	r := prometheus.NewRegistry()
	r.MustRegister(srdprom.New(ep))
}
