// Package cachestatus is what rdmacached tells rdmactl of itself, as JSON over HTTP.
package cachestatus

import (
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
)

// Path is where a daemon serves it, beside its metrics.
const Path = "/status"

// Status is a daemon's.
type Status struct {
	Listens  string          // address for RDMA clients
	Device   string          // the RDMA device
	State    string          // serving, or stopping
	Seconds  float64         // since it began
	Server   server.Stats    // without tenants
	Hot      []server.HotKey `json:",omitempty"`
	Tenants  []Tenant        // nil: the server has none; empty: all are revoked
	Gateway  string          // address of memcached's protocol; empty without
	For      string          `json:",omitempty"` // the tenant that it is for
	Commands gateway.Stats
}

// Tenant is one of the tenants that share the address.
type Tenant struct {
	Name   string
	Server server.Stats
	Hot    []server.HotKey `json:",omitempty"`
}
