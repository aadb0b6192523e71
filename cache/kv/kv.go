// Package kv has the requests and replies of the cache's stores. A cache's client, its server and
// package gateway's Store all speak it: a program that implements the one method
//
//	Do(ctx context.Context, q *kv.Request) (kv.Reply, error)
//
// can stand in place of a server behind the gateway. The semantics are memcached's:
// each of its text and meta commands becomes one request.
//
// A request needs only the fields that its [Op] and the bits in Want name. A store that does not
// know a bit returns an error rather than ignore it.
package kv

// Op is what a request does with its key.
type Op uint8

const (
	OpGet     Op = iota + 1 // returns the record
	OpSet                   // stores the value
	OpAdd                   // stores it if the key has none, or else replies NotStored
	OpReplace               // stores it if the key has one, or else replies NotStored
	OpAppend                // puts it behind the stored value, or replies NotStored
	OpPrepend               // puts it before the stored value, or replies NotStored
	OpDelete                // removes the record
	OpArith                 // adds Delta to a decimal number
	OpFlush                 // removes all records; it has no key
)

// Stores reports whether a request of this kind stores its value.
func (o Op) Stores() bool { return o >= OpSet && o <= OpPrepend }

// Bits of [Request].Want.
const (
	WantTouch   = 1 << iota // a get, OpArith, or a delete with WantStale: set the expiry
	WantVivify              // make a record where there is none, which expires after Vivify and has the value Initial with OpArith
	WantRecache             // a get: ask for a win if the record expires in less than Recache
	WantNoBump              // leave no trace of the access
	WantCompare             // only if the CAS number is CAS, or else reply Exists; 0 does for OpAppend, OpPrepend and OpArith
	WantStale               // a delete: mark the record stale instead. A set: a CAS below the record's will do
	WantDecr                // OpArith: subtract, down to 0
	WantBinary              // the client gave the key in base64
	WantNoValue             // the reply needs no value
	WantIfLater             // a flush: at Expiry instead of at once
	WantWin                 // a get of a stale value: ask whether this client should fetch a new one
	WantStored              // pass over a record that a get with WantVivify has made, unless its CAS number is CAS with WantCompare
)

// Request is what a store executes. Times are in milliseconds from its execution: 0 is never, and what is
// negative is over. The store keeps neither the request nor its slices after Do has returned.
type Request struct {
	Op      Op
	Want    uint32 // bits Want...
	Flags   uint32 // of the client, kept with the value
	Expiry  int64  // of the record
	Vivify  int64  // with WantVivify: of the record that is made
	Recache int64  // with WantRecache
	CAS     uint64 // with WantCompare
	Delta   uint64 // of OpArith
	Initial uint64 // of OpArith with WantVivify
	Key     []byte // at most 250 bytes
	Value   []byte
	Into    []byte // memory for the reply's value, from its beginning on, if it is long enough
}

// Status is the outcome of a request.
type Status uint8

const (
	OK         Status = iota + 1
	NotFound          // there is no such key
	NotStored         // the condition of OpAdd, OpReplace, OpAppend or OpPrepend does not hold
	Exists            // the CAS number is another one
	NotNumeric        // OpArith on a value that is no number
	TooLarge          // the value is longer than the store takes
	NoMemory          // there is no room for it
)

// Bits of [Reply].Bits.
const (
	ReplyWon      = 1 << iota // this client should fetch a new value
	ReplySent                 // another client was told so
	ReplyStale                // the value is marked stale
	ReplyFetched              // the value had been read since it was stored
	ReplyCreated              // this request made the record
	ReplyBinary               // the key was stored with WantBinary
	ReplyVivified             // with NotFound: WantStored has passed over the record with the number CAS
)

// Reply is the outcome of a request. Beside Status and Bits it describes the record that was found
// or stored.
type Reply struct {
	Status Status
	Bits   uint16 // bits Reply...
	Flags  uint32
	CAS    uint64 // changes with every change of the record
	Expiry uint64 // in milliseconds of the clock that Clock is of; 0: never
	Clock  uint64 // the store's clock in milliseconds when it replied
	Idle   uint64 // milliseconds since the last access
	Number uint64 // the result of OpArith
	Value  []byte // belongs to the caller
}
