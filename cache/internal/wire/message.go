package wire

import (
	"encoding/binary"
	"math"
)

// Kind is what a message is.
type Kind uint8

const (
	KindRequest   Kind = iota + 1 // client: a call
	KindReply                     // server: its outcome
	KindMap                       // server: a snapshot begins
	KindChunk                     // server: a part of it
	KindDeltas                    // server: changes of the map
	KindHorizon                   // client: how far it is
	KindReport                    // client: what it READ, a sample
	KindTarget                    // server: through what a client READs that has no queue pair here
	KindBye                       // client: no READ of its is under way, nor will be; it is the last message
	KindMode                      // client: how it finds records, if not as the server advises
	KindPlacement                 // server: which server of the cluster has which keys
	kinds
)

// HeaderSize is what each message begins with: magic, kind, format, epoch, length.
const HeaderSize = 12

// MaxMessage is the length of the longest message.
const MaxMessage = MaxValue + MaxKey + 256

const (
	messageMagic  = 0xca4e
	messageFormat = 1
)

// begin appends a header without its length, which end fills in.
func begin(dst []byte, k Kind, epoch uint32) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, messageMagic)
	dst = append(dst, byte(k), messageFormat)
	dst = binary.LittleEndian.AppendUint32(dst, epoch)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

func end(dst []byte, start int) []byte {
	binary.LittleEndian.PutUint32(dst[start+8:], uint32(len(dst)-start))
	return dst
}

// Header is what a message begins with.
type Header struct {
	Kind   Kind
	Epoch  uint32
	Length int // of the whole message
}

// ReadHeader decodes the header that src begins with.
func ReadHeader(src []byte) (h Header, err error) {
	if len(src) < HeaderSize {
		return h, Short
	}
	h = Header{Kind(src[2]), binary.LittleEndian.Uint32(src[4:]), int(binary.LittleEndian.Uint32(src[8:]))}
	if binary.LittleEndian.Uint16(src) != messageMagic || src[3] != messageFormat || h.Kind == 0 || h.Kind >= kinds ||
		h.Length < HeaderSize || h.Length > MaxMessage {
		return Header{}, Malformed
	}
	return h, nil
}

// open returns the body of a message of one kind, which fills src.
func open(src []byte, k Kind, fixed int) (epoch uint32, body []byte, err error) {
	h, err := ReadHeader(src)
	switch {
	case err != nil:
		return 0, nil, err
	case h.Kind != k || len(src) > h.Length:
		return 0, nil, Malformed
	case len(src) < h.Length || h.Length < HeaderSize+fixed:
		return 0, nil, Short
	}
	return h.Epoch, src[HeaderSize:], nil
}

// Op is what a request wants.
type Op uint8

const (
	OpGet Op = iota + 1
	OpSet
	OpAdd
	OpReplace
	OpAppend
	OpPrepend
	OpDelete
	OpArith
	OpFlush
	OpList // the keys of a shard; see [Listed]
	ops
)

// Stores reports whether a request stores its value.
func (o Op) Stores() bool { return o >= OpSet && o <= OpPrepend }

// Bits of a request: what more it wants.
const (
	WantTouch   = 1 << iota // set the expiry
	WantVivify              // make a record where there is none
	WantRecache             // ask for a win when it expires before Recache
	WantNoBump              // leave no trace of the access
	WantCompare             // only if the CAS number is this one
	WantStale               // mark as stale; with a set: an older CAS number will do
	WantDecr                // subtract
	WantBinary              // the key came in base64
	WantNoValue             // the reply needs no value
	WantIfLater             // a flush: at Expiry, not now
	WantWin                 // of a stale value: ask whether this client is to fetch a new one
	wantKnown   = 1<<iota - 1
)

// Request is a call. Times are in ms from its execution: 0 is never, what is negative
// is over.
type Request struct {
	ID      uint64
	Op      Op
	Want    uint32
	Flags   uint32
	Expiry  int64
	Vivify  int64
	Recache int64
	CAS     uint64
	Delta   uint64
	Initial uint64
	Key     []byte
	Value   []byte
	Epoch   uint32
	// Placement is the epoch of the placement that a flush is for; 0: that of a client of one server.
	Placement uint32
	ReadOnly  bool   // of the decoder: no change can come of it
	Into      []byte // not sent: memory for the reply's value, from its beginning on, if it is long enough
}

const requestFixed = 76

// AppendRequest encodes a request.
func AppendRequest(dst []byte, r *Request) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = begin(dst, KindRequest, r.Epoch)
	dst = le.AppendUint64(dst, r.ID)
	dst = append(dst, byte(r.Op), 0)
	dst = le.AppendUint16(dst, uint16(len(r.Key)))
	dst = le.AppendUint32(dst, uint32(len(r.Value)))
	dst = le.AppendUint32(dst, r.Want)
	dst = le.AppendUint32(dst, r.Flags)
	for _, v := range [...]uint64{uint64(r.Expiry), uint64(r.Vivify), uint64(r.Recache), r.CAS, r.Delta, r.Initial} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint32(dst, r.Placement)
	return end(append(append(dst, r.Key...), r.Value...), start)
}

// ReadRequest decodes a request. Key and value are views.
func ReadRequest(src []byte) (r Request, err error) {
	epoch, b, err := open(src, KindRequest, requestFixed)
	if err != nil {
		return r, err
	}
	le := binary.LittleEndian
	key, value := int(le.Uint16(b[10:])), int(le.Uint32(b[12:]))
	r = Request{
		Epoch: epoch, ID: le.Uint64(b), Op: Op(b[8]), Want: le.Uint32(b[16:]), Flags: le.Uint32(b[20:]),
		Expiry: int64(le.Uint64(b[24:])), Vivify: int64(le.Uint64(b[32:])), Recache: int64(le.Uint64(b[40:])),
		CAS: le.Uint64(b[48:]), Delta: le.Uint64(b[56:]), Initial: le.Uint64(b[64:]), Placement: le.Uint32(b[72:]),
	}
	if r.Op == 0 || r.Op >= ops || b[9] != 0 || r.Want&^wantKnown != 0 || r.Placement != 0 && r.Op != OpFlush ||
		key > MaxKey || key > 0 && (r.Op == OpFlush || r.Op == OpList) || value > MaxValue || len(b) != requestFixed+key+value ||
		!sane(r.Expiry) || !sane(r.Vivify) || !sane(r.Recache) {
		return Request{}, Malformed
	}
	r.Key, r.Value = b[requestFixed:requestFixed+key:requestFixed+key], b[requestFixed+key:]
	r.ReadOnly = r.Op == OpGet && r.Want&(WantTouch|WantVivify|WantRecache|WantWin) == 0
	return r, nil
}

// sane keeps times from overflowing when they are added to a clock.
func sane(t int64) bool { return t > math.MinInt64/4 && t < math.MaxInt64/4 }

// Status is the outcome of a request.
type Status uint8

const (
	OK         Status = iota + 1
	NotFound          // there is no such key
	NotStored         // add of what is there, replace and the like of what is not
	Exists            // the CAS number is another one
	NotNumeric        // arithmetic on something else
	TooLarge
	NoMemory // everything is in use or in quarantine
	WrongEpoch
	WrongServer // not executed: another server of the cluster has the key, or will have it soon
	statuses
)

// Bits of a reply.
const (
	ReplyWon     = 1 << iota // this client should fetch a new value
	ReplySent                // another one has been told so
	ReplyStale               // the value is marked stale
	ReplyFetched             // it had been read since it was stored
	ReplyCreated             // this request made it
	ReplyBinary              // the key came in base64
	replyKnown   = 1<<iota - 1
)

// Reply is the outcome of a request.
type Reply struct {
	ID     uint64
	Status Status
	Bits   uint16
	Flags  uint32
	CAS    uint64
	Expiry uint64 // of the server's clock; 0: never
	Clock  uint64 // the server's, when it replied
	Idle   uint64 // ms since the last access
	Number uint64 // what arithmetic came to
	Seq    uint64 // the delta that the change became, or the last one before
	Entry  Entry  // where the record is now; zero if nowhere
	Value  []byte
	Epoch  uint32
}

const replyFixed = 64 + EntrySize + 8

// AppendReply encodes a reply.
func AppendReply(dst []byte, r *Reply) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = begin(dst, KindReply, r.Epoch)
	dst = le.AppendUint64(dst, r.ID)
	dst = append(dst, byte(r.Status), 0)
	dst = le.AppendUint16(dst, r.Bits)
	dst = le.AppendUint32(dst, r.Flags)
	for _, v := range [...]uint64{r.CAS, r.Expiry, r.Clock, r.Idle, r.Number, r.Seq} {
		dst = le.AppendUint64(dst, v)
	}
	dst = appendEntry(dst, &r.Entry)
	dst = le.AppendUint64(dst, uint64(len(r.Value)))
	return end(append(dst, r.Value...), start)
}

// ReadReply decodes a reply. The value is a view.
func ReadReply(src []byte) (r Reply, err error) {
	epoch, b, err := open(src, KindReply, replyFixed)
	if err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r = Reply{
		Epoch: epoch, ID: le.Uint64(b), Status: Status(b[8]), Bits: le.Uint16(b[10:]), Flags: le.Uint32(b[12:]),
		CAS: le.Uint64(b[16:]), Expiry: le.Uint64(b[24:]), Clock: le.Uint64(b[32:]), Idle: le.Uint64(b[40:]),
		Number: le.Uint64(b[48:]), Seq: le.Uint64(b[56:]), Entry: GetEntry(b[64:]),
	}
	if r.Status == 0 || r.Status >= statuses || b[9] != 0 || r.Bits&^replyKnown != 0 ||
		le.Uint64(b[64+EntrySize:]) != uint64(len(b)-replyFixed) {
		return Reply{}, Malformed
	}
	r.Value = b[replyFixed:]
	return r, nil
}
