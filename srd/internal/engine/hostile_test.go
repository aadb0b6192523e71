package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Whatever a peer says that has a session: nothing panics, each message has one status,
// and all memory comes back.
func TestHostilePeer(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		h := new(counter)
		e := New(Config{Config: session.Config{Addr: addrOf(0), Wall: 5, MTU: 400, MaxMessage: 5000}, Host: h, Paths: 3})
		p := e.find(addrOf(1))
		e.Renew(&p.Peer, 9, 9, anyLimits)
		raw := time.Duration(0)
		sent := 0
		var b [wire.MaxHeaders]byte
		var o Out
		for range 2000 {
			raw += time.Duration(r.IntN(300)) * time.Microsecond
			e.Advance(raw)
			if r.IntN(5) == 0 {
				handle, err := e.Send(addrOf(1), Message{Service: uint8(r.IntN(wire.Services)), Len: r.IntN(200), Parts: r.IntN(2) == 0})
				require.NoError(t, err)
				sent++
				if r.IntN(5) == 0 {
					e.Cancel(handle)
				}
			}
			k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, RespondNow: r.IntN(2) == 0, SubFlow: uint8(r.IntN(20)), SubSeq: uint16(r.IntN(9)), Heard: uint16(r.Uint32())}
			number := func(near uint32) uint32 { return near + r.Uint32N(20) - 10 }
			service := uint8(r.IntN(wire.Services))
			var una, nxt, base uint32
			if f := p.tx[service]; f != nil {
				una, nxt = f.una, f.nxt
			}
			if f := p.rx[service]; f != nil {
				base = f.base
			}
			if k.HasResponse = r.IntN(2) == 0; k.HasResponse {
				k.Response = wire.Response{Service: service, HasEcho: r.IntN(2) == 0, EchoPath: uint8(r.IntN(20)), EchoStamp: r.Uint32N(3000), Delay: r.Uint32N(3000),
					Grant: uint16(r.IntN(300)), Base: number(nxt), Floor: number(una), NSeen: uint8(r.IntN(5)), NRefused: uint8(r.IntN(5))}
				for i := range k.Response.Seen {
					k.Response.Seen[i], k.Response.Refused[i] = r.Uint64(), r.Uint64()
				}
			}
			if k.HasPart = r.IntN(2) == 0 || !k.HasResponse; k.HasPart {
				k.Part = wire.Part{Service: service, Cancel: r.IntN(5) == 0, Seq: number(base + 10), Floor: number(base), Total: r.Uint32N(6000), Fragment: uint16(1 + r.IntN(300))}
				k.Part.Index = r.Uint32N(wire.Count(k.Part.Total, k.Part.Fragment))
			}
			switch r.IntN(50) {
			case 0:
				k = wire.Packet{Type: wire.Challenge, Token: p.Local, Challenge: wire.Challenged{Cookie: 7, Known: uint64(r.IntN(20))}}
			case 1:
				k = wire.Packet{Type: wire.Welcome, Token: p.Local, Welcome: wire.Granted{Epoch: uint64(1 + r.IntN(20)), Token: uint64(1 + r.IntN(3)), Hello: p.Mine, Limits: anyLimits}}
			case 2:
				k = wire.Packet{Type: wire.Reset, Slot: p.Slot, Reset: p.Remote}
			case 3:
				k = wire.Packet{Type: wire.Probe, Token: p.Local, SubFlow: uint8(r.IntN(20))}
			case 4:
				k = wire.Packet{Type: wire.Echo, Token: p.Local, Echo: wire.Echoed{Path: uint8(r.IntN(20)), Stamp: r.Uint32N(3000)}}
			}
			n := k.Encode(b[:])
			packet := append([]byte(nil), b[:n]...)
			if k.HasPart {
				packet = append(packet, make([]byte, k.Part.Length())...)
			}
			e.Receive(Source{GID: p.Addr.GID, QPN: p.Addr.QPN}, packet)
			for range r.IntN(4) {
				e.Next(b[:], &o)
			}
		}
		for range 200 { // it falls silent
			raw += e.cfg.PeerTimeout / 16
			e.Advance(raw)
			for e.Next(b[:], &o) {
			}
			e.Wait()
		}
		require.Equal(t, sent, h.settled, "seed %d", seed)
		require.Zero(t, h.out, "seed %d", seed)
	}
}

// counter is a host that takes everything.
type counter struct {
	settled int
	out     int // bytes of Room that did not come back
}

func (h *counter) Soon(int) bool { return false }
func (h *counter) Room(size int) []byte {
	h.out += size
	return make([]byte, size)
}

func (h *counter) Deliver(d *Delivery, owned bool) bool {
	if owned {
		h.out -= len(d.Bytes)
	}
	return true
}
func (h *counter) Drop(b []byte)                   { h.out -= len(b) }
func (h *counter) Settled(*Result)                 { h.settled++ }
func (h *counter) PartSettled(uint64, int, Status) {}
func (h *counter) Pressure() uint8                 { return 0 }
