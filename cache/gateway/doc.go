// Package gateway speaks memcached's text and meta protocol in front of a store.
//
//	s, err := gateway.New(gateway.Config{Store: store})
//	err = s.Serve(listener)
//
// Replies are those of memcached 1.6.18 (Debian 12), byte for byte (TestAgainstMemcached),
// except for what differs between any two servers: CAS numbers, times, what
// stats and me report of the inside, and the length to which append and prepend may extend a
// value (here: as the store allows). They are also those of 1.6.38 (Debian 13), except for
// the flags that it has added: E of meta commands, x of md, and s and N of ms are refused or
// ignored here, as by 1.6.18. The gateway deliberately differs where memcached is
// inconsistent:
//
//   - mg: R looks at the expiry that T sets, whatever the order of the two.
//   - A key in base64 stays one when its value is vivified, appended to or counted.
//   - flush_all with a delay brings nothing back that was flushed before.
//   - A get with a key that is too long does not discard the replies to earlier commands.
//   - Before the password, each command gets its own reply, also when several were sent at
//     once; and a password's set of more than 2 KiB ends the connection.
//   - A client that has not started TLS and given its password within ten seconds is
//     disconnected.
//
// The version command returns 1.6.18 with nothing behind it, since clients parse it.
//
// stats counts the commands of this gateway. stats items, slabs, sizes and cachedump report the
// records of the store, however they came, by ranges of sizes in the place of slabs (see
// [Inspector]). Statistics of parts that are missing here, such as the LRU crawler, are left
// out. stats detail counts all commands, for at most 4096 prefixes.
//
// Commands that tune memcached's inside (slabs, lru, lru_crawler, watch, extstore) get the
// reply ERROR. The binary protocol is recognised and refused with the reason. There
// is no UDP.
//
// # Guarantees
//
// Commands of one connection are carried out in their order, and so come the replies. Commands of
// several connections are as linearizable as the store. If the store returns an error, the client
// gets SERVER_ERROR, and a change may have been made or not.
//
// [Server.Serve] returns [ErrClosed] after [Server.Shutdown] or [Server.Close]. It may be called for
// several listeners. Shutdown carries out the commands that have arrived; Close does not. Neither
// closes the store: close that afterwards. A client that breaks the protocol, or is silent for Idle,
// ends its own connection only.
//
// Without TLS, passwords and values go over the network in the clear.
//
// # Costs
//
// A connection has a goroutine and 32 KiB of buffers, and keeps at most 64 KiB for each of a line, a
// value that it sets and one that it gets; memory for longer ones is shared. Replies to commands that were sent
// together are written together. A hit is one call of the store's Do, and copies the value once.
package gateway
