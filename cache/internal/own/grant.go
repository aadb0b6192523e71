package own

import "time"

// maxGrant is the longest time for which a client may READ without another grant.
const maxGrant = time.Second

// Grant lets a client READ the shards of a list until a time of the server's clock, if the client
// has that list or a later one.
type Grant struct {
	Version uint32        // of the list
	Until   time.Duration // of the server's clock
	Clock   time.Duration // of the server, when it wrote the grant
}

// Version returns the version of the list of shards that clients may READ. The caller sends a list with a new
// version to all clients.
func (s *Server) Version() uint32 { return s.version }

// Readable reports whether a shard is in the list, and returns the epoch of its owner.
func (s *Server) Readable(i int) (epoch uint32, ok bool) {
	h := &s.shards[i]
	return h.epoch, h.state == open
}

// Grant returns a grant for a client, until the deadline and for a second at most.
func (s *Server) Grant(client uint64, now time.Duration) Grant {
	g := Grant{s.version, min(s.deadline, now+maxGrant), now}
	s.granted = max(s.granted, g.Until)
	s.Confirm(client, 0)
	return g
}

// Confirm notes that a client has the list with a version: no READ of a shard that is not in it counts any more.
func (s *Server) Confirm(client uint64, version uint32) {
	s.clients[client] = max(s.clients[client], version)
}

// Detach forgets a client that cannot READ any more.
func (s *Server) Detach(client uint64) { delete(s.clients, client) }

// confirmed reports whether all clients have the list with a version, or a later one.
func (s *Server) confirmed(version uint32) bool {
	for _, v := range s.clients {
		if v < version {
			return false
		}
	}
	return true
}
