package cluster

import "time"

// Status is the state of a member.
type Status struct {
	Epoch     uint32 // of the table of shards; 0: there is none yet
	Members   int
	Shards    int           // that this server owns
	Joined    bool          // this server is a member
	Left      time.Duration // for which it serves its shards without a word of etcd or of all other members
	Moves     uint64        // of shards, that have ended with this server as their owner
	Takeovers uint64        // of members that this one has found dead, by it or another one
	Promises  uint64        // rounds of promises of all other members, which have taken the place of etcd
}

// Status returns the state of the member.
func (m *Member) Status() (st Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.Moves, st.Takeovers, st.Promises = m.moves, m.ended, m.rounds
	if m.own == nil || m.own.Placement() == nil {
		return st
	}
	p, number := m.own.Placement(), m.own.Number()
	st.Epoch, st.Joined = p.Epoch, number != 0
	for range p.Members() {
		st.Members++
	}
	st.Shards = p.Owned(number)
	st.Left = max(m.own.Deadline()-m.now(), 0)
	return st
}
