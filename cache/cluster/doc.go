// Package cluster makes servers of package server members of a cluster that share the keys: servers join and leave
// while it serves, and the records move with the keys. The members agree by etcd.
//
//	s, err := server.Listen(ctx, "10.77.0.2:7481", server.Config{Key: key})
//	m, err := cluster.Join(s, cluster.Config{
//		Name: "prod", ID: "h1", Etcd: []string{"http://10.77.0.2:2379"}, Advertise: "10.77.0.2:7481",
//		Client: cache.Config{Key: key},
//	})
//	defer m.Close()
//	err = s.Serve(ctx)
//
// A client names some of the members ([github.com/goverbs/goverbs/cache.DialCluster]); they tell it of all
// others.
//
// # Guarantees
//
// The keys are divided into 1,024 shards. A table, which is one key of etcd, has the owner of each. Members change it
// by transactions that compare what they have read, and send each new one to their clients.
//
//   - Single keys are linearizable for all clients of the cluster, while servers join, leave and die. At each
//     moment one server executes the changes of a shard, and no other has records of it that a client could READ.
//   - When a server joins, or weights differ, shards move until each member has its share by weight. The next owner
//     copies the records of one shard at a time by READs, while the owner serves them. Only the last changes are
//     copied while changes of the shard wait.
//   - A server that leaves ([Member.Drain]) hands over all its shards before.
//   - No other member takes over the shards of a server that dies. Its keys are unavailable until the next life
//     of the same id takes them over, without records, at least 1.1 TTL after the last beat of the former one.
//   - Without etcd all members serve what they have, and nothing moves.
//
// No promise needs clocks, except that two processes must not run with one id: the second one ends when
// it sees the beats of the first.
//
// # Costs
//
// Each member writes and reads a few KiB of etcd every sixth of the TTL. etcd keeps the history of its keys until it
// is told to compact (--auto-compaction-retention). A change of the table sends 6 KiB to each client. A hit
// costs what it costs without a cluster; a miss is always a call.
package cluster
