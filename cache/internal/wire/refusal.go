// Package wire has the layouts of the cache: records and buckets, which clients READ,
// and messages. All numbers are little endian. Decoders take hostile bytes: they check
// lengths before they look, never panic, and name what they refuse. What a later version adds it may send
// only to a peer that has offered the feature for it in the greeting (package greet).
package wire

// Refusal is why a decoder refused bytes. It is an error.
type Refusal uint8

const (
	Short       Refusal = iota // fewer bytes than the layout has
	Malformed                  // magic, kind, lengths or reserved bits are none of ours
	Dead                       // a tombstone
	Torn                       // the checksum does not fit
	OtherEpoch                 // of another life of the server
	OtherKey                   // a record of another key
	OtherRecord                // a record of the key, another than the entry says
	Moved                      // a bucket of a table that has doubled since
	refusals
)

var refusalNames = [refusals]string{
	"too short", "malformed", "record is dead", "checksum does not fit", "another epoch",
	"record of another key", "another record of the key", "bucket has moved",
}

func (r Refusal) Error() string { return "cache: " + r.String() }

func (r Refusal) String() string {
	if r >= refusals {
		return "unknown refusal"
	}
	return refusalNames[r]
}

// Refusals counts by reason.
type Refusals [refusals]uint64

// Note counts err if it is a [Refusal], and returns it.
func (c *Refusals) Note(err error) error {
	if r, ok := err.(Refusal); ok && r < refusals {
		c[r]++
	}
	return err
}

// Total returns the number of all that were counted.
func (c *Refusals) Total() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}
