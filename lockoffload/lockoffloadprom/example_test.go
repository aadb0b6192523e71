package lockoffloadprom_test

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/lockoffload/lockoffloadprom"
)

// The counters of a target in a registry, which promhttp serves.
func ExampleNewServer() {
	var l *lockoffload.Listener // lockoffload.Listen
	r := prometheus.NewRegistry()
	r.MustRegister(lockoffloadprom.NewServer(l.Stats), lockoffloadprom.NewAgent(l.AgentStats))
}
