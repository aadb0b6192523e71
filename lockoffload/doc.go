// Package lockoffload locks remote memory, accesses it and unlocks it without
// waiting for replies in between.
//
// A read chain is a lock command, a data access request and an unlock command
// posted together:
//
//	initiator                          target
//	CMP_SWAP lock   0 -> tag  ───────▶ old value
//	READ record               ───────▶ version, checksum, data
//	CMP_SWAP unlock tag -> 0  ───────▶ old value
//	◀─────────── replies, one wait ───
//
// Why it is safe. The tag is never used twice, so behind a lock command that
// failed the unlock command compares with a tag that is not there and changes
// nothing; the data is then thrown away. Hardware may execute the READ after
// the unlock command. Then another holder's WRITE may be under way: the
// checksum refuses a torn record and the chain is tried again. A record that
// passes is a whole one, current at some moment between posting and
// completion, which is all that a read may promise.
//
// A change takes two steps, [lock, READ] and [WRITE, unlock]:
//
//	CMP_SWAP lock, READ       ───────▶
//	◀──────────────────────── replies: the caller computes
//	WRITE, CMP_SWAP unlock    ───────▶ nobody waits for this
//
// The WRITE goes out only after the lock command's reply says that it is
// ours, since nothing holds back a WRITE behind a lock command that failed.
// The READ has completed before the WRITE is posted, and a target executes a
// WRITE before an atomic that follows it on the same queue pair.
//
// A lock here has no lease: one whose holder dies stays locked.
package lockoffload
