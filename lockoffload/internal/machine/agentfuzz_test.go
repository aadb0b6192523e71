package machine

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// FuzzAgentSubmit gives an agent whatever a client may SEND, each message with
// a length in front. Nothing makes it panic, answer outside a reply's bounds or
// keep a buffer.
func FuzzAgentSubmit(f *testing.F) {
	add := func(msgs ...[]byte) {
		var all []byte
		for _, m := range msgs {
			all = append(binary.LittleEndian.AppendUint16(all, uint16(len(m))), m...)
		}
		f.Add(all)
	}
	request := func(seq uint64, slot uint32, accesses ...wire.Access) []byte {
		r := wire.ChainRequest{Client: 7, Seq: seq, Slot: slot, Tries: 2}
		b := r.AppendTo(nil)
		for _, a := range accesses {
			b = wire.AppendAccess(b, a)
		}
		return wire.SealMessage(b, len(accesses))
	}
	write := wire.Access{Kind: wire.AccessWrite, Data: []byte("0123456789abcdef")}
	add(request(1, 0, write, wire.Access{Kind: wire.AccessRead}), request(1, 0, write), request(2, 0, wire.Access{Kind: wire.AccessCompare, Version: 3}))
	add(request(9, 3), request(5, 3), request(1<<63, 0, write), request(1, 1<<31))
	add(request(1, 0, wire.Access{Kind: wire.AccessWrite, Data: make([]byte, 17)}), request(2, 0, wire.Access{Kind: wire.AccessRead, Record: 9}))
	reply := wire.ChainReply{Client: 7, Seq: 9, Status: wire.ChainDone, Tries: 2}
	add(make([]byte, 40), wire.SealMessage(wire.AppendAccess(reply.AppendTo(nil), wire.Access{Kind: wire.AccessRead, Data: []byte("12345678")}), 1))
	f.Fuzz(func(t *testing.T, all []byte) {
		b := newAgentBench(t, 8)
		p := b.client(7)
		given := 0
		replies := func() {
			for _, o := range b.Outs {
				_, err := wire.DecodeReply(b.reply(o.Peer, o.Entry)[:o.N])
				require.NoError(t, err)
			}
			b.Outs = b.Outs[:0]
		}
		for len(all) > 2 && given < len(b.jobs) {
			n := min(int(binary.LittleEndian.Uint16(all)), len(all)-2)
			b.Submit(0, int32(given), p, all[2:2+n])
			b.Turn(0)
			replies()
			all = all[2+n:]
			given++
		}
		words := make([]uint64, 8)
		for now := time.Duration(0); len(b.Free) < given; now += 100 * time.Microsecond {
			for len(b.Ops) > 0 {
				op := b.Ops[0]
				b.Ops = append(b.Ops[:0], b.Ops[1:]...)
				if op.Last {
					words[0] = op.A // held by others, or unlocked
					if given%2 == 0 && op.A == 0 {
						words[0] = 99
					}
					b.Result(now, op.Job, words)
					replies()
				}
			}
			b.Turn(now)
			replies()
		}
		require.Len(t, b.Free, given)
	})
}
