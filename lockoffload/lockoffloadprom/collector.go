// Package lockoffloadprom exports the statistics of clients, servers and agents to Prometheus. It is
// apart from package lockoffload so that programs without Prometheus do not have it.
package lockoffloadprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/internal/prom"
	"github.com/goverbs/goverbs/lockoffload"
)

// New returns a collector of a client. Register it with a constant label where there are several:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"region": "accounts"}, registry).MustRegister(lockoffloadprom.New(c))
func New(c *lockoffload.Client) prometheus.Collector {
	return prom.One("lockoffload_client_", metrics, c.Stats)
}

// NewServer returns a collector of a server, for the method Stats of a [lockoffload.Server] or
// [lockoffload.Listener].
func NewServer(stats func() lockoffload.ServerStats) prometheus.Collector {
	return prom.One("lockoffload_server_", serverMetrics, stats)
}

// NewAgent returns a collector of an agent, for the method Stats of a [lockoffload.Agent], or
// AgentStats of a [lockoffload.Listener].
func NewAgent(stats func() lockoffload.AgentStats) prometheus.Collector {
	return prom.One("lockoffload_agent_", agentMetrics, stats)
}

var metrics = []prom.Metric[lockoffload.Stats]{
	prom.Count("tries", "Lock commands.", func(s *lockoffload.Stats) uint64 { return s.Tries }),
	prom.Count("acquired", "Lock commands that got the lock.", func(s *lockoffload.Stats) uint64 { return s.Acquired }),
	prom.Count("failed", "Lock commands that found it held by others.", func(s *lockoffload.Stats) uint64 { return s.Failed }),
	prom.Count("reader_waits", "Pauses for readers.", func(s *lockoffload.Stats) uint64 { return s.Waits }),
	prom.Count("torn_reads", "READs that met a WRITE, or what a dead writer left, or took too long.", func(s *lockoffload.Stats) uint64 { return s.Torn }),
	prom.Count("lost", "Locks that were gone when they were given back.", func(s *lockoffload.Stats) uint64 { return s.Lost }),
	prom.Count("reads", "Accesses of one READ, without a lock.", func(s *lockoffload.Stats) uint64 { return s.Read }),
	prom.Count("read_chains", "Accesses of lock command, READ and unlock command in one post.", func(s *lockoffload.Stats) uint64 { return s.ReadChain }),
	prom.Count("read_held", "READs under a lock, which was given back after them.", func(s *lockoffload.Stats) uint64 { return s.ReadHeld }),
	prom.Count("two_step", "Changes by lock command and READ, then WRITE and unlock command.", func(s *lockoffload.Stats) uint64 { return s.TwoStep }),
}

var serverMetrics = []prom.Metric[lockoffload.ServerStats]{
	prom.Count("admitted", "Sessions admitted.", func(s *lockoffload.ServerStats) uint64 { return s.Admitted }),
	prom.Count("ended", "Sessions that said goodbye or were closed here.", func(s *lockoffload.ServerStats) uint64 { return s.Ended }),
	prom.Count("expired", "Sessions with a lease that ran out.", func(s *lockoffload.ServerStats) uint64 { return s.Expired }),
	prom.Count("recovered", "Locks and readers that were taken back.", func(s *lockoffload.ServerStats) uint64 { return s.Recovered }),
}

var agentMetrics = []prom.Metric[lockoffload.AgentStats]{
	prom.Count("accepted", "Chains taken in.", func(s *lockoffload.AgentStats) uint64 { return s.Accepted }),
	prom.Count("done", "Chains executed.", func(s *lockoffload.AgentStats) uint64 { return s.Done }),
	prom.Count("differing", "Chains ended by a compare.", func(s *lockoffload.AgentStats) uint64 { return s.Differs }),
	prom.Count("not_acquired", "Chains ended by count or deadline.", func(s *lockoffload.AgentStats) uint64 { return s.NotAcquired }),
	prom.Count("damaged", "Chains that met a damaged record.", func(s *lockoffload.AgentStats) uint64 { return s.Damaged }),
	prom.Count("lost", "Unlock commands that found another tag.", func(s *lockoffload.AgentStats) uint64 { return s.Lost }),
	prom.Count("busy", "Chains refused for want of room.", func(s *lockoffload.AgentStats) uint64 { return s.Busy }),
	prom.Count("refused", "Chains that make no sense.", func(s *lockoffload.AgentStats) uint64 { return s.Refused }),
	prom.Count("repeated", "Copies of chains that were known.", func(s *lockoffload.AgentStats) uint64 { return s.Repeated }),
	prom.Count("unknown", "Copies of chains too old to be known.", func(s *lockoffload.AgentStats) uint64 { return s.Unknown }),
	prom.Count("malformed", "Messages dropped without a reply.", func(s *lockoffload.AgentStats) uint64 { return s.Malformed }),
	prom.Count("carried", "Chains executed under the lock of another one.", func(s *lockoffload.AgentStats) uint64 { return s.Carried }),
	prom.Count("tries", "Times that a lock was examined.", func(s *lockoffload.AgentStats) uint64 { return s.Tries }),
	prom.Count("unsent", "Replies that could not be posted.", func(s *lockoffload.AgentStats) uint64 { return s.Unsent }),
	prom.Count("turns", "Locks that were reserved for clients that take them in turn.", func(s *lockoffload.AgentStats) uint64 { return s.Turns }),
	prom.Count("lapsed", "Reserved locks that were not taken in time.", func(s *lockoffload.AgentStats) uint64 { return s.Lapsed }),
}
