// Package cachestatus is what rdmacached tells rdmactl of itself, as JSON over HTTP.
package cachestatus

import (
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
)

// Path is where a daemon answers it, beside its metrics.
const Path = "/status"

// Status is a daemon's.
type Status struct {
	Listens  string  // address for RDMA clients
	Device   string  // the RDMA device
	State    string  // serving, or stopping
	Seconds  float64 // since it began
	Server   server.Stats
	Gateway  string // address of memcached's protocol; empty without
	Commands gateway.Stats
}
