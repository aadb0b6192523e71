package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/internal/accept"
)

// shortages returns a collector of how often the process had no room for connections, to whatever address.
func shortages() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rdmacached_accept_shortages_total",
		Help: "Times that clients had to wait since the process had no file descriptors or memory for connections; minutes lie between them.",
	}, func() float64 { return float64(accept.Shortages()) })
}
