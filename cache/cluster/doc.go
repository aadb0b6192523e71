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
//   - Single keys are linearizable for all clients of the cluster, while servers join, leave, die and hang. At each
//     moment one server executes the requests for a shard, and no READ counts at another one.
//   - When a server joins, or weights differ, shards move until each member has its share by weight. The next owner
//     copies the records of up to 32 shards at a time by READs, while the owner serves them. Only the last changes are
//     copied while changes of those shards wait.
//   - A server that leaves ([Member.Drain]) hands over all its shards before.
//   - Other members take over the shards of a server that dies, hangs or is cut off, 1.1 TTL and two beats after its
//     last beat, or when etcd has been back for two thirds of a TTL. Its records are misses from then on, and its keys
//     are unavailable before. A client never gets a value of the former owner that is older than an acknowledged
//     change, even while the device of that goes on to respond to READs. A copy that NearBytes allows is used for no
//     longer than a READ would count.
//   - A server that was silent for too long, as after SIGSTOP, executes nothing that waits for it. It drops its records
//     and joins again by itself.
//   - While etcd is silent nothing moves, and all members serve what they have as long as all of them promise each
//     other not to take over. If one does not reply, the others stop one TTL later, until etcd is back: operations
//     on their keys wait. After a silence of everything for all members they go on with their records.
//
// # Method and assumptions
//
// Each member writes a key of its own in etcd every sixth of the TTL, a beat. It owns its shards until its deadline, a
// little less than a TTL after the last beat that etcd has confirmed was sent, or the last round of promises.
// Another member takes over when it has seen the key unchanged for 1.1 TTL of its own clock; it watches the keys, since
// what it reads with its own beats comes late while etcd elects a leader. Clients that READ ask
// the server for grants, about two in a TTL, and a READ that has completed counts if the server's clock cannot
// have reached the deadline yet; otherwise an RPC follows.
//
// This holds while the rates of all clocks differ by less than 1/1024, and no clock stands still, as that of
// a paused virtual machine does, for more than a twentieth of a TTL within a TTL. Two processes must not run with one
// id: the second one ends when it sees the beats of the first. All members must have the same TTL: a server with
// another one ends. Members believe each other and all clients that have their key.
//
// # Costs
//
// Each member writes and reads a few KiB of etcd every sixth of the TTL, and etcd tells all others. etcd keeps the
// history of its keys until it is told to compact (--auto-compaction-retention). A change of the table sends 6 KiB to
// each client. A hit costs one READ, as without a cluster, and a look at the clock; a client that READs sends about two
// messages in a TTL to each server. A miss is always an RPC.
package cluster
