package wire

import (
	"encoding/binary"
	"math"

	"github.com/goverbs/goverbs/cache/kv"
)

// Kind is what a message is.
type Kind uint8

const (
	KindRequest   Kind = iota + 1 // client: an RPC
	KindReply                     // server: its outcome
	KindMap                       // server: a full sync begins
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

// What only servers of a cluster execute.
const (
	OpList    = kv.OpFlush + 1 + iota // requests the keys of shards: see [Listed]
	OpGrant                           // requests the time until which READs count, of the server's clock: Number of the reply
	OpPromise                         // is of another server: its value is of package cluster, and so is the reply's
)

// Bounds of what a decoder knows.
const (
	ops        = OpPromise + 1
	wantKnown  = kv.WantStored<<1 - 1
	replyKnown = kv.ReplyVivified<<1 - 1
)

// Request is an RPC's request as it is sent. Into is not.
type Request struct {
	kv.Request
	ID        uint64
	Epoch     uint32
	Placement uint32 // epoch of the placement that a flush is for; 0: that of a client of one server
	ReadOnly  bool   // of the decoder: no change can come of it
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
	r = Request{Epoch: epoch, ID: le.Uint64(b), Placement: le.Uint32(b[72:]), Request: kv.Request{Op: kv.Op(b[8]), Want: le.Uint32(b[16:]), Flags: le.Uint32(b[20:]), Expiry: int64(le.Uint64(b[24:])), Vivify: int64(le.Uint64(b[32:])), Recache: int64(le.Uint64(b[40:])), CAS: le.Uint64(b[48:]), Delta: le.Uint64(b[56:]), Initial: le.Uint64(b[64:])}}
	if r.Op == 0 || r.Op >= ops || b[9] != 0 || r.Want&^wantKnown != 0 || r.Placement != 0 && r.Op != kv.OpFlush ||
		key > MaxKey || key > 0 && r.Op >= kv.OpFlush || value > MaxValue || len(b) != requestFixed+key+value ||
		!sane(r.Expiry) || !sane(r.Vivify) || !sane(r.Recache) {
		return Request{}, Malformed
	}
	r.Key, r.Value = b[requestFixed:requestFixed+key:requestFixed+key], b[requestFixed+key:]
	r.ReadOnly = r.Op == kv.OpGet && r.Want&(kv.WantTouch|kv.WantVivify|kv.WantRecache|kv.WantWin) == 0
	return r, nil
}

// sane keeps times from overflowing when they are added to a clock.
func sane(t int64) bool { return t > math.MinInt64/4 && t < math.MaxInt64/4 }

// Statuses of requests that are not executed.
const (
	WrongEpoch  = kv.NoMemory + 1 + iota // the epoch is that of an earlier life of the server
	WrongServer                          // another server of the cluster has the key, or will have it soon
	statuses
)

// Reply is the outcome of a request as it is sent.
type Reply struct {
	kv.Reply
	ID    uint64
	Seq   uint64 // the delta that the change became, or the last one before
	Entry Entry  // where the record is now; zero if nowhere
	Epoch uint32
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
	r = Reply{Epoch: epoch, ID: le.Uint64(b), Seq: le.Uint64(b[56:]), Entry: GetEntry(b[64:]), Reply: kv.Reply{Status: kv.Status(b[8]), Bits: le.Uint16(b[10:]), Flags: le.Uint32(b[12:]), CAS: le.Uint64(b[16:]), Expiry: le.Uint64(b[24:]), Clock: le.Uint64(b[32:]), Idle: le.Uint64(b[40:]), Number: le.Uint64(b[48:])}}
	if r.Status == 0 || r.Status >= statuses || b[9] != 0 || r.Bits&^replyKnown != 0 ||
		le.Uint64(b[64+EntrySize:]) != uint64(len(b)-replyFixed) {
		return Reply{}, Malformed
	}
	r.Value = b[replyFixed:]
	return r, nil
}
