// Package place has the placement of a cluster: which server owns which shard of the keys.
//
// A placement is one value, with an epoch that rises with each change. The servers keep it under one
// key of etcd and replace it by transactions that compare what they have read, so that there is
// one order of all placements. [Placement.Format] and [Parse] write and read its text there, and
// [Message] is its form between a server and its clients. [Placement.Plan] returns the moves that
// bring each server to its share of the shards. It depends on the placement alone, so that all
// servers plan the same.
//
// Changes such as [Placement.Join] return another placement and leave their receiver as it is, so
// any number of goroutines may read it. The package has no I/O, clocks or locks.
package place

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"

	"github.com/zeebo/xxh3"
)

const (
	// Shards is the number of shards of a cluster. It is part of the format.
	Shards = 1 << shardBits
	// MaxServers is the number of servers that a placement can list.
	MaxServers = 255
	// MaxWeight is the greatest weight of a server.
	MaxWeight = 100
	// MaxAddress is the length of the longest address of a server in bytes.
	MaxAddress = 64

	shardBits = 10
)

// ShardOf returns the shard of a key: the first ten bits of its hash.
func ShardOf(key []byte) int { return int(xxh3.Hash(key) >> (64 - shardBits)) }

var (
	// ErrPlacement means that bytes are no placement, or that a placement contradicts itself.
	ErrPlacement = errors.New("malformed placement")
	// ErrFull means that a placement has no number, or no space, for another server.
	ErrFull = errors.New("the cluster has no place for another server")
	// ErrChange means that a change does not apply to a placement.
	ErrChange = errors.New("no such change of the placement")
)

// Life is one run of a server. The next run of it has the same id and a greater boot number.
type Life struct {
	ID   string
	Boot uint64
}

// State is what a server is to the cluster.
type State uint8

const (
	Member   State = iota + 1 // owns its share of the shards
	Draining                  // is a member, and its shards move to others
	Gone                      // is no member and owns nothing; its number is kept for its next life
)

// Server is a server of a placement.
type Server struct {
	Life
	Number  uint8  // in the placement, from 1
	Address string // where clients connect to, with a port
	Zone    string // what fails together with it; may be empty
	Weight  uint8  // of its share
	State   State
}

// Shard is the owner of a shard.
type Shard struct {
	Owner uint8  // the number of a server; 0: none
	Epoch uint32 // of the placement that made it the owner
	// Handed means that the owner before handed its records over. Otherwise they are lost.
	Handed bool
}

// Placement is the placement of a cluster.
type Placement struct {
	Cluster [16]byte // names the cluster, at random
	Epoch   uint32   // rises with each change
	Servers []Server // by number
	Shards  []Shard  // [Shards] of them, except in simulations
}

// New returns the first placement of a cluster, with one server that owns all shards.
func New(cluster [16]byte, shards int, first Server) *Placement {
	first.Number, first.State = 1, Member
	p := &Placement{Cluster: cluster, Epoch: 1, Servers: []Server{first}, Shards: make([]Shard, shards)}
	for i := range p.Shards {
		p.Shards[i] = Shard{Owner: 1, Epoch: 1}
	}
	return p
}

// Number returns the number of a life that is a member, or 0.
func (p *Placement) Number(life Life) uint8 {
	for i := range p.Servers {
		if s := &p.Servers[i]; s.Life == life && s.State != Gone {
			return s.Number
		}
	}
	return 0
}

// Owned returns how many shards the member with a number owns.
func (p *Placement) Owned(number uint8) (n int) {
	for _, s := range p.Shards {
		if number != 0 && s.Owner == number {
			n++
		}
	}
	return n
}

// Member returns the member with a number, or nil.
func (p *Placement) Member(number uint8) *Server {
	for i := range p.Servers {
		if s := &p.Servers[i]; s.Number == number && s.State != Gone {
			return s
		}
	}
	return nil
}

// Members returns all members, by number.
func (p *Placement) Members() iter.Seq[*Server] {
	return func(yield func(*Server) bool) {
		for i := range p.Servers {
			if s := &p.Servers[i]; s.State != Gone && !yield(s) {
				return
			}
		}
	}
}

// find returns the server with an id, or nil.
func (p *Placement) find(id string) *Server {
	i := slices.IndexFunc(p.Servers, func(s Server) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Servers[i]
}

// names are those of servers, clusters and zones.
var names = regexp.MustCompile(`^[a-z0-9.-]{1,63}$`)

// IsName reports whether a text can be the id of a server, or the name of a cluster or zone: 1 to 63
// of the characters a to z, 0 to 9, dot and hyphen.
func IsName(text string) bool { return names.MatchString(text) }

// Check returns an error that matches [ErrPlacement] unless the placement has [Shards] shards, each
// with an owner that is a member or with none, servers that differ in id and number, and room in a
// [Message].
func (p *Placement) Check() error {
	if len(p.Shards) != Shards {
		return fmt.Errorf("%w: %d shards", ErrPlacement, len(p.Shards))
	}
	ids, last := make(map[string]bool), uint8(0)
	var member [256]bool
	for i := range p.Servers {
		s := &p.Servers[i]
		switch {
		case s.Number <= last:
			return fmt.Errorf("%w: server %d follows %d", ErrPlacement, s.Number, last)
		case !IsName(s.ID) || ids[s.ID]:
			return fmt.Errorf("%w: %q is no id, or has another server", ErrPlacement, s.ID)
		case s.Zone != "" && !IsName(s.Zone):
			return fmt.Errorf("%w: zone %q", ErrPlacement, s.Zone)
		}
		if err := s.check(); err != nil {
			return err
		}
		ids[s.ID], last, member[s.Number] = true, s.Number, s.State != Gone
	}
	for i, s := range p.Shards {
		if s.Owner != 0 && (!member[s.Owner] || s.Epoch == 0) || s.Epoch > p.Epoch {
			return fmt.Errorf("%w: shard %d has owner %d in epoch %d", ErrPlacement, i, s.Owner, s.Epoch)
		}
	}
	if p.messageLength() > MaxMessage {
		return fmt.Errorf("%w: addresses take more than a message has", ErrPlacement)
	}
	return nil
}

// check checks what clients receive of a server.
func (s *Server) check() error {
	switch {
	case s.State < Member || s.State > Gone || s.Weight > MaxWeight:
		return fmt.Errorf("%w: server %d has state %d and weight %d", ErrPlacement, s.Number, s.State, s.Weight)
	case len(s.Address) == 0 || len(s.Address) > MaxAddress:
		return fmt.Errorf("%w: the address of server %d has %d bytes", ErrPlacement, s.Number, len(s.Address))
	}
	for _, c := range []byte(s.Address) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("%w: address %q", ErrPlacement, s.Address)
		}
	}
	return nil
}
