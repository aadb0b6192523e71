package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/handles"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// ways are a node's address handles. Each holds the MAC that its port had when it was made: what
// is sent by it is lost when the port gets another one. One is made at a time, as by the driver.
type ways struct {
	handles.Cache[int]
	n       *node
	asked   []handles.Way
	making  bool
	parcels map[uint32]parcel
	last    uint32
}

// parcel is a packet that waits for its handle.
type parcel struct {
	out    Out
	packet []byte
}

func newWays(n *node, paths int) *ways {
	c := &ways{n: n, parcels: make(map[uint32]parcel)}
	c.Parked = 64
	c.Now = func() time.Duration { return n.w.now }
	for path := range paths {
		c.Labels = append(c.Labels, uint32(path+1))
	}
	c.Ask = func(to handles.Way) {
		c.asked = append(c.asked, to)
		c.next()
	}
	c.Help = func() {
		asked := c.asked
		c.asked = nil
		for _, to := range asked {
			c.make(to, func() {})
		}
	}
	return c
}

// noPort is the MAC of a node that has gone from the network.
const noPort = -1

// at returns the node with an address, which no node may have.
func (w *world) at(gid [16]byte) *node {
	if id := idOf(wire.Addr{GID: gid}); id >= 0 && id < len(w.nodes) {
		return w.nodes[id]
	}
	return &node{mac: noPort}
}

// next makes the handle that was asked for first, unless another is being made.
func (c *ways) next() {
	if c.making || len(c.asked) == 0 {
		return
	}
	c.making = true
	to := c.asked[0]
	c.asked = c.asked[1:]
	c.make(to, func() {
		c.making = false
		c.next()
	})
}

// make makes a handle, which takes a second if nothing is there.
func (c *ways) make(to handles.Way, then func()) {
	w := c.n.w
	n := w.at(to.To)
	took := w.resolve
	if n.mac == noPort {
		took = time.Second
	}
	w.after(took, func() {
		if c.n.ways != c {
			return // of an earlier life
		}
		ok := n.mac != noPort
		c.Made(to, n.mac, ok)
		if ok {
			for _, i := range c.Resume() {
				c.launch(i)
			}
		} else {
			for _, i := range c.Lost(to, c.wayOf) {
				delete(c.parcels, i)
			}
		}
		c.Unused()
		then()
		if !c.n.silent {
			c.n.pump()
		}
	})
}

func (c *ways) post(o Out, packet []byte) {
	c.n.w.parcels++
	c.last++
	c.parcels[c.last] = parcel{o, packet}
	if c.launch(c.last) {
		c.n.w.waits++
	}
}

func (c *ways) wayOf(i uint32) (handles.Way, bool) {
	o := c.parcels[i].out
	return c.Way(o.To.GID, int(o.Path)), o.Unauthenticated
}

func (c *ways) launch(i uint32) (waits bool) {
	to, unauthenticated := c.wayOf(i)
	h, waits := c.Take(i, to, unauthenticated)
	if waits {
		return true
	}
	p := c.parcels[i]
	delete(c.parcels, i)
	if h == nil {
		return false // as if it were lost
	}
	h.Uses--
	if h.AH == c.n.w.at(p.out.To.GID).mac {
		c.n.w.send(c.n, &p.out, p.packet)
	}
	return false
}

// withHandles has the nodes of a world begin anew, with address handles.
func withHandles(w *world, resolve time.Duration) *world {
	w.resolve = resolve
	for _, n := range w.nodes {
		n.start(0)
	}
	w.run(w.now + time.Millisecond)
	return w
}

// A message arrives though the port of its sender or its receiver gets another MAC at any time:
// whether or not the other end sends by itself, and whether the session is new or known.
func TestPortGetsAnotherMAC(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := simple(1 + rng.IntN(4))
		if rng.IntN(2) == 0 {
			cfg.Key = &wire.Key{seed, 1}
		}
		w := withHandles(newWorld(t, seed, 3, cfg), time.Duration(1+rng.IntN(3000))*time.Microsecond)
		w.model.patient = true
		both := rng.IntN(2) == 0
		send := func() {
			w.model.post(w.nodes[0], 1, uint8(rng.IntN(2)), rng.IntN(5000))
			w.nodes[0].pump()
			if both {
				w.model.post(w.nodes[1], 0, uint8(rng.IntN(2)), rng.IntN(5000))
				w.nodes[1].pump()
			}
		}
		for range rng.IntN(20) {
			send()
			w.run(w.now + time.Duration(rng.IntN(2000))*time.Microsecond)
		}
		if rng.IntN(3) == 0 { // a session that is idle, and known for long
			w.run(w.now + time.Duration(rng.IntN(3000))*time.Millisecond)
		}
		w.nodes[rng.IntN(2)].mac++
		for range 20 {
			send()
			w.run(w.now + time.Duration(rng.IntN(2000))*time.Microsecond)
		}
		w.run(w.now + 3*cfg.PeerTimeout)
		w.model.end()
		for _, l := range w.model.sent {
			require.Equal(t, Delivered, l.status, "seed %d", seed)
			require.Equal(t, 1, l.count)
		}
		for _, n := range w.nodes {
			require.Empty(t, n.ways.parcels)
		}
	}
}

// A peer that names responses is not taken for one that hears nothing, however long it sends; nor
// are its handles made again when it checks a session after a pause.
func TestNamedResponses(t *testing.T) {
	cfg := simple(2)
	w := newWorld(t, 1, 2, cfg)
	told := 0
	for _, n := range w.nodes {
		n.e.cfg.Silent = func(wire.Addr) { told++ }
	}
	for _, pause := range []time.Duration{time.Millisecond, cfg.PeerTimeout / 3, 3 * cfg.PeerTimeout} {
		for range 20 {
			l := w.model.post(w.nodes[0], 1, Reliable, 64)
			w.nodes[0].pump()
			w.run(w.now + pause)
			require.Equal(t, Delivered, l.status)
		}
		require.Zero(t, told, "%v", pause)
	}
}

// A host that restarts with another MAC is heard by those that have handles to its predecessor.
func TestSuccessorHasAnotherMAC(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		cfg := simple(2)
		cfg.Key = key
		w := withHandles(newWorld(t, 1, 2, cfg), time.Millisecond)
		a, b := w.nodes[0], w.nodes[1]
		send := func() *letter {
			l := w.model.post(a, 1, Reliable, 64)
			a.pump()
			w.run(w.now + 2*cfg.PeerTimeout)
			return l
		}
		require.Equal(t, Delivered, send().status)
		a.mac++
		w.model.crash(a, 0)
		require.Equal(t, Delivered, send().status)
		w.run(w.now + 3*cfg.PeerTimeout)
		b.mac++
		require.Equal(t, Delivered, send().status)
	}
}

// Hosts at which nothing answers for their address hold up no others, and their packets do not
// stay.
func TestUnreachableHostsHoldUpNoOther(t *testing.T) {
	cfg := simple(4)
	w := withHandles(newWorld(t, 1, 8, cfg), 100*time.Microsecond)
	a := w.nodes[0]
	var lost []*letter
	for to := 2; to < 8; to++ {
		w.nodes[to].mac = noPort
		lost = append(lost, w.model.post(a, to, Reliable, 64))
	}
	a.pump()
	for range 20 {
		l := w.model.post(a, 1, Reliable, 5000)
		a.pump()
		w.run(w.now + 100*time.Millisecond)
		require.Equal(t, Delivered, l.status)
	}
	for _, l := range lost {
		require.Equal(t, Unresponsive, l.status)
	}
	w.run(w.now + 3*time.Second)
	require.Empty(t, a.ways.parcels)
}

// Of the packets to 4,000 hosts by eight paths nearly none waits for an address handle, once each
// host has its share of them.
func TestFourThousandHosts(t *testing.T) {
	const hosts, first, rounds = 4000, 20, 25
	cfg := simple(8)
	cfg.Key = &wire.Key{1, 2}
	cfg.PeerTimeout = 0
	w := withHandles(newWorld(t, 1, hosts+1, cfg), 20*time.Microsecond)
	w.model.patient = true
	hub := w.nodes[0]
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range rounds {
		if round == first {
			w.parcels, w.waits = 0, 0
		}
		for range hosts {
			w.model.post(hub, 1+rng.IntN(hosts), Reliable, 64)
			hub.pump()
			w.run(w.now + 50*time.Microsecond)
		}
	}
	share := float64(w.waits) / float64(w.parcels)
	w.run(w.now + time.Second)
	w.model.end()
	t.Logf("%d ways to each, %.4f of the packets waited for a handle", hub.ways.Share(), share)
	require.Less(t, share, 0.02)
	for _, l := range w.model.sent {
		require.Equal(t, Delivered, l.status)
	}
}
