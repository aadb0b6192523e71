package srd

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// machine decides what is sent, and what becomes of messages: engine.Engine over a
// device that may lose datagrams, offload.Machine over one that delivers them. Its
// methods are called with the endpoint's lock held.
type machine interface {
	Advance(now time.Duration)
	Send(to wire.Addr, m engine.Message) (engine.Handle, error)
	Cancel(h engine.Handle)
	// Wait returns how long there is nothing to do, unless something arrives.
	Wait() time.Duration
	Fragment() int
	Peers(f func(*engine.PeerStats))
	Count() *session.Stats
}

// driver moves packets between a machine and a device. Its methods are called with the
// endpoint's lock held, if nothing else is said.
type driver interface {
	// begin lets packets in. It is called once, before all others.
	begin() error
	// flush has the machine make the packets that it may, and posts them.
	flush()
	// urgent reports whether receives have to be posted before the program's next call.
	urgent() bool
	// full reports whether packets wait until others have completed.
	full() bool
	// mend repairs the queue pairs that failed, and reports whether all could be repaired.
	mend() bool
	// resume sends packets that waited for an address handle; lost gives up the packets for
	// which none could be made.
	resume()
	lost(to way)
	// close destroys everything. It is called without the lock, when no call is inside any more.
	close() error
}

// sessions makes the endpoint's address, and returns the configuration of its sessions. Up to idle
// receives are not posted at times; of the others, peers may have packets under way for three
// quarters.
func (ep *Endpoint) sessions(qpn uint32, mtu, idle int) session.Config {
	cfg := &ep.cfg
	ep.addr = Addr{GID: ep.gid.GID, QPN: qpn, QKey: cfg.QKey}
	c := session.Config{
		Addr: ep.addr.wire(), Wall: uint64(time.Now().UnixNano()), MTU: mtu,
		Boot:     func() time.Duration { return time.Duration(boottime.Now().UnixNano()) },
		MaxPeers: cfg.MaxPeers, MaxMessage: cfg.MaxMessage, Budget: (cfg.Receives - idle) * 3 / 4,
		AckDelay: cfg.ackDelay, PeerTimeout: cfg.PeerTimeout,
	}
	rand.Read(c.Seed[:])
	if k := cfg.Key; k != nil {
		c.Key = &wire.Key{binary.LittleEndian.Uint64(k), binary.LittleEndian.Uint64(k[8:])}
	}
	return c
}

// toldOfKeys logs a warning if the packet that was just received has another key than the
// endpoint's.
func (ep *Endpoint) toldOfKeys(from engine.Source) {
	if n := ep.e.Count().WrongKey; n != ep.badKeys {
		ep.badKeys = n
		ep.logs.Warn("srd: a greeting has another Key, or none: it is not answered", "gid", verbs.GID(from.GID).Addr(), "qpn", from.QPN)
	}
}

// pump has the machine do what is due, and sends what it may. ep.mu must be held.
func (ep *Endpoint) pump() { ep.pumpAt(ep.now()) }

func (ep *Endpoint) pumpAt(now time.Duration) {
	if ep.closed.Load() || ep.failure != nil { // its memory may be gone, or its device
		return
	}
	ep.e.Advance(now)
	ep.flush(now)
}

// flush sends what the machine, which was told that it is now, may send. The endpoint must be open, and ep.mu held.
func (ep *Endpoint) flush(now time.Duration) {
	ep.polls.did(now)
	ep.driver.flush()
	ep.setAlarm(now)
}

// gather copies the bytes of a message from offset on that fit into to.
func gather(to []byte, data [][]byte, offset int) {
	for _, b := range data {
		if offset >= len(b) {
			offset -= len(b)
			continue
		}
		n := copy(to, b[offset:])
		to, offset = to[n:], 0
		if len(to) == 0 {
			return
		}
	}
}
