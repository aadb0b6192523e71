package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Packets of real sessions that were changed by an attacker that knows tokens, lines and the key:
// nothing panics, each message has one status, all memory comes back, and what is kept of turns and
// of senders is consistent.
func TestChangedPackets(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 20
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 5))
		var key *wire.Key
		if r.IntN(2) == 0 {
			key = &wire.Key{1, 2}
		}
		const n = 4
		var es [n]*Engine
		var hs [n]*counter
		var sent [n]int
		for i := range es {
			hs[i] = new(counter)
			es[i] = New(Config{Config: session.Config{Addr: addrOf(i), Wall: 1 << 60, MTU: 400, MaxMessage: 5000, Key: key, Budget: 1 + r.IntN(40), Seed: [32]byte{byte(seed), byte(i)}, MaxPeers: 8}, Host: hs[i], Paths: 3})
		}
		raw := time.Duration(0)
		b := make([]byte, 2048)
		var o Out
		pump := func(i int) {
			for k := 0; k < 200 && es[i].Next(b, &o); k++ {
				p := append([]byte(nil), b[:o.Headers]...)
				p = append(p, make([]byte, o.Length)...)
				if o.Seal {
					es[i].Seal(&o.To, p[:o.Headers], p[o.Headers:])
				}
				to := idOf(o.To)
				if to < 0 || to >= n {
					continue
				}
				from := Source{GID: addrOf(i).GID, QPN: addrOf(i).QPN}
				if r.IntN(8) > 0 {
					es[to].Receive(from, p)
				}
				for r.IntN(2) == 0 {
					q := append([]byte(nil), p...)
					for range 1 + r.IntN(3) {
						at := 0
						switch r.IntN(3) {
						case 0:
							at = r.IntN(len(q))
						default:
							at = min(len(q)-1, wire.HeaderLen+r.IntN(80))
						}
						if r.IntN(9) > 0 && (at >= 4 && at < 12 || at >= 24 && at < 28) {
							continue // token and verification tag
						}
						switch r.IntN(4) {
						case 0:
							q[at] ^= 1 << r.IntN(8)
						case 1:
							q[at] += byte(r.IntN(7)) - 3
						case 2:
							q[at] = byte(r.Uint32())
						default:
							if at+4 <= len(q) && at >= wire.HeaderLen {
								binary.BigEndian.PutUint32(q[at:], []uint32{0, 1, 1<<32 - 1, 1 << 31, r.Uint32()}[r.IntN(5)])
							}
						}
					}
					if q[0]&15 == byte(wire.Hello) && key != nil && len(q) >= o.Headers && o.Headers >= wire.HelloLen {
						wire.SetMAC(q, wire.Seal(*key, &o.To, q[:o.Headers], q[o.Headers:]))
					}
					if r.IntN(6) == 0 {
						q = q[:r.IntN(len(q)+1)]
					}
					es[to].Receive(from, q)
				}
			}
			es[i].checkTurns(t)
		}
		for range 300 {
			raw += time.Duration(r.IntN(2000)) * time.Microsecond
			if r.IntN(50) == 0 {
				raw += time.Duration(r.Int64N(int64(10 * time.Second)))
			}
			for i := range es {
				es[i].Advance(raw)
				if r.IntN(3) == 0 {
					service := uint8(r.IntN(wire.Services))
					m := Message{Service: service, Len: r.IntN(4000), Parts: r.IntN(2) == 0, Now: r.IntN(2) == 0}
					h, err := es[i].Send(addrOf(r.IntN(n)), m)
					if err == nil {
						sent[i]++
						if r.IntN(6) == 0 {
							es[i].Cancel(h)
						}
					}
				}
				pump(i)
				es[i].Wait()
			}
		}
		for range 400 {
			raw += es[0].cfg.PeerTimeout / 16
			for i := range es {
				es[i].Advance(raw)
				for k := 0; k < 1000 && es[i].Next(b, &o); k++ {
				}
				es[i].Wait()
				es[i].checkTurns(t)
			}
		}
		for i := range es {
			require.Equal(t, sent[i], hs[i].settled, "seed %d", seed)
			require.Zero(t, hs[i].out, "seed %d", seed)
			require.Zero(t, es[i].senders.granted)
			require.Zero(t, es[i].senders.length)
		}
	}
}
