// Package gateway speaks memcached's text and meta protocol for a store.
//
//	s, err := gateway.New(gateway.Config{Store: store})
//	err = s.Serve(listener)
//
// Answers are those of memcached 1.6.18 (Debian 12), byte for byte
// (TestAgainstMemcached), but for what differs between any two servers: CAS numbers,
// times, the version, what stats and me tell of the inside, and how long a value may
// become by append and prepend (here: as the store allows). They are those of 1.6.38 (Debian 13)
// too, but for what that has beside: the flags E of meta commands and x of md, and s and N of ms, are
// refused here, or passed over, as 1.6.18 does. On purpose it differs where memcached is inconsistent:
//
//   - mg: R looks at the expiry that T sets, whatever the order of the two.
//   - A key in base64 stays one when its value is vivified, appended to or counted.
//   - flush_all with a delay brings nothing back that was flushed before.
//   - A get whose key is too long takes no answers with it of commands that were sent before.
//   - Before the password each command has its answer, also when several were sent at
//     once; and a password's set that is longer than 2 KiB ends the connection.
//   - Who has not begun TLS and said its password within ten seconds is let go.
//
// Commands that tune memcached's inside (slabs, lru, lru_crawler, watch, extstore) are
// answered with ERROR. The binary protocol is recognised and refused with the reason.
// There is no UDP.
package gateway
