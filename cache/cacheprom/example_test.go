package cacheprom_test

import (
	"context"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cacheprom"
)

// The statistics of a cache client at /metrics.
func ExampleNew() {
	c, err := cache.Dial(context.Background(), "10.77.0.2:7481", cache.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	prometheus.MustRegister(cacheprom.New(c))
	http.Handle("/metrics", promhttp.Handler())
	log.Print(http.ListenAndServe(":9100", nil))
}
