// Package own decides which server of a cluster may serve a shard. [Server] is the part of one life of a server, a
// state machine without I/O, clocks or locks: the caller passes messages, and the time.
//
// # Promises
//
//   - At each moment at most one server executes changes of a shard, and a READ at any other server finds no record, or
//     fails the check that follows it. So single keys are linearizable.
//   - A shard that its owner hands over keeps its records. A shard that is taken over from a server that
//     died, hangs or is cut off is empty; it has no older record.
//   - The shards of a server that stops are served by others 1.1 [Config.TTL] after its last beat, and
//     two more beats.
//   - Without etcd all shards are served as long as all members are alive and reach each other.
//
// # Method
//
// Each server writes a key of its own life in etcd every sixth of the TTL (a beat), in a transaction
// that also reads the placement and the keys of the others. A beat that finds the server a member
// extends its deadline: it owns its shards until then by its own clock, counted from when the beat was
// sent. Another member that has seen the key unchanged for 1.1 TTL by its own clock, counted from when
// the reply came, may take the shards over, by a transaction that compares the placement and
// that key. Time in which it had no reply itself does not count, but for a beat, unless that is longer than the others
// need to beat again. When etcd is silent,
// promises of all members not to do so extend the deadline as a beat does.
//
// A grant lets a client READ until the deadline, of the server's clock. The client bounds that clock from above (package
// mirror): it shows at most what the server wrote, and the time since the client asked. A server that hands over a shard
// executes no change of it, and removes its records before another one owns it: a READ that begins later finds none.
//
// # Assumptions
//
//   - The rates of two clocks differ by less than 1 in [Config.Drift].
//   - No clock stands still for more than a twentieth of a TTL within a TTL, as that of a paused virtual
//     machine does. A process that is stopped is no such case: its clock goes on.
//   - etcd's transactions are linearizable. They may be lost, repeated, executed late, and executed
//     without a reply.
//   - Two processes do not run with one id at a time, unless the second one sees the first one's beats
//     and ends. The boot numbers of an id rise.
//
// Messages may be lost, repeated, late, and overtake each other.
package own
