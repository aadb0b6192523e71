// Package cachestatus is what rdmacached tells rdmactl, the demo and the benchmarks of itself, as JSON over HTTP.
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
	Cluster  *Cluster `json:",omitempty"` // nil: the server is in none
}

// Cluster is what a member knows of its cluster.
type Cluster struct {
	Name, ID, State string
	Epoch           uint32  // of the table of shards; 0: there is none yet
	Shards          int     // of this server
	Planned         int     // moves of shards, of all members
	Left            float64 // seconds for which it serves without a word of etcd or of all other members
	Moves, Given    uint64  // shards that have come, and gone
	Takeovers       uint64
	Promises        uint64  // rounds of promises of all other members
	Beats, Missed   uint64  // of which etcd has confirmed the former
	Beat            float64 // seconds until etcd confirmed the last one
	Members         []Member
}

// Member is a member in the table of shards.
type Member struct {
	ID, Address string
	Zone        string `json:",omitempty"`
	Weight      int
	Draining    bool
	Shards      int
}

// Tenant is one of the tenants that share the address.
type Tenant struct {
	Name   string
	Server server.Stats
	Hot    []server.HotKey `json:",omitempty"`
}
