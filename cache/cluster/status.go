package cluster

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// State is what a server is to its cluster.
type State string

const (
	Joining  State = "joining"   // it is no member yet, or not any more
	Active   State = "member"    // it has its share of the shards
	Draining State = "draining"  // it hands over its shards
	Silent   State = "no quorum" // it serves nothing: neither etcd nor all other members reply
)

// Status is the state of a member.
type Status struct {
	Name, ID  string
	State     State
	Epoch     uint32         // of the table of shards; 0: there is none yet
	Members   []MemberStatus // by number
	Shards    int            // that this server owns
	Planned   int            // moves of shards between members until each has its share
	Left      time.Duration  // for which it serves its shards without a word of etcd or of all other members
	Moves     uint64         // of shards, that have ended with this server as their owner
	Given     uint64         // shards that this server has handed over
	Held      time.Duration  // for which changes of a shard waited for its next owner, of all those together
	Takeovers uint64         // of members that this one has found dead, by it or another one
	Promises  uint64         // rounds of promises of all other members, which have taken the place of etcd
	Beats     uint64         // that etcd has confirmed
	Missed    uint64         // beats that it has not
	Beat      time.Duration  // until etcd confirmed the last one
}

// MemberStatus is a member in the table of shards.
type MemberStatus struct {
	ID, Address, Zone string
	Weight            int
	Draining          bool
	Shards            int
}

// Status returns the state of the member.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.counts
	st.Name, st.ID, st.State = m.cfg.Name, m.cfg.ID, Joining
	if m.own == nil || m.own.Placement() == nil {
		return st
	}
	p, number := m.own.Placement(), m.own.Number()
	for s := range p.Members() {
		st.Members = append(st.Members, MemberStatus{s.ID, s.Address, s.Zone, int(s.Weight), s.State == place.Draining, p.Owned(s.Number)})
	}
	st.Epoch, st.Shards, st.Planned = p.Epoch, p.Owned(number), len(p.Plan())
	st.Left = max(m.own.Deadline()-m.now(), 0)
	switch me := p.Member(number); {
	case me == nil:
	case st.Left == 0:
		st.State = Silent
	case me.State == place.Draining:
		st.State = Draining
	default:
		st.State = Active
	}
	return st
}
