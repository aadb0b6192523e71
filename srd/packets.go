package srd

import (
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// slot is memory for a packet that is sent.
type slot struct {
	h      *handle
	to     wire.Addr
	length int
	path   uint8
	// The first covered of covers complete with it. It is an array, since each slot covers
	// others sooner or later.
	covers  [signalEvery - 1]uint32
	covered uint8
	flush   uint8 // which one sent it

	unauthenticated bool // its destination is an unauthenticated peer
}

// flush has the engine make the packets that it may, and posts them by one call, a chain for
// each path. Receives go first: a response lets the peer fill them.
func (l *links) flush() {
	for ; l.short != 0; l.short &= l.short - 1 {
		if k := l.paths[bits.TrailingZeros32(l.short)]; !k.broken {
			l.addReceives(k)
			l.posts.AddRecv(k.recv)
			l.posting = append(l.posting, k)
		}
	}
	l.handsOver(l.ep.polls.clock)
	for len(l.free) > 0 {
		i := l.free[len(l.free)-1]
		at := l.sendAt(i)
		b := l.mr.Bytes()[at:][:l.stride]
		if !l.e.Next(b, &l.out) {
			break
		}
		l.free = l.free[:len(l.free)-1]
		o := &l.out
		if o.Length > 0 {
			gather(b[o.Headers:][:o.Length], l.ep.requests.all[uint32(o.Tag)].data, o.Offset)
		}
		if o.Seal {
			l.e.Seal(&o.To, b[:o.Headers], b[o.Headers:][:o.Length])
		}
		s := &l.slots[i]
		s.to, s.length, s.path, s.unauthenticated = o.To, o.Headers+o.Length, o.Path, o.Unauthenticated
		l.launch(i)
	}
	l.post()
}

// handsOver records now as the time at which the next packets are handed to the device.
func (l *links) handsOver(now time.Duration) {
	if l.flushed[l.flushes].n > 0 {
		l.flushes++
	}
	l.flushed[l.flushes].at, l.flushed[l.flushes].n = now, 0
}

// wayOf returns the way of a packet.
func (l *links) wayOf(i uint32) (to way, unauthenticated bool) {
	s := &l.slots[i]
	return l.ep.handles.Way(s.to.GID, int(s.path)), s.unauthenticated
}

// launch adds a packet to its path's chain, or has it wait for an address handle.
func (l *links) launch(i uint32) {
	s := &l.slots[i]
	k := l.paths[s.path]
	if k.broken { // as if it were lost
		l.free = append(l.free, i)
		return
	}
	to, unauthenticated := l.wayOf(i)
	h, waits := l.ep.handles.Take(i, to, unauthenticated)
	switch {
	case waits:
		return
	case h == nil: // likewise
		l.free = append(l.free, i)
		return
	}
	if k.send.Len() == k.send.Cap() {
		l.post()
	}
	s.h, s.flush = h, l.flushes
	l.flushed[l.flushes].n++
	var flags verbs.SendFlags
	if s.length <= k.qp.MaxInline() {
		flags = verbs.Inline
	}
	if k.told < firstTold || len(k.silent) == signalEvery-1 {
		k.told = min(k.told+1, firstTold)
		flags |= verbs.Signaled
		s.covered = uint8(copy(s.covers[:], k.silent))
		k.silent = k.silent[:0]
	} else {
		k.silent = append(k.silent, i)
	}
	l.unposted |= 1 << k.index
	k.send.SendTo(l.d.ID(l.tag(k, i)), flags, verbs.Destination{AH: h.AH, QPN: s.to.QPN, QKey: s.to.QKey}, l.mr.SGE(l.sendAt(i), s.length))
}

func (l *links) urgent() bool { return l.short != 0 }

// lost drops the packets that wait for an address handle that cannot be made, as if the
// network had lost them.
func (l *links) lost(to way) { l.free = append(l.free, l.ep.handles.Lost(to, l.wayOf)...) }

// resume launches the packets that waited for address handles.
func (l *links) resume() {
	l.handsOver(l.ep.now()) // their wait says nothing about the device
	for _, i := range l.ep.handles.Resume() {
		l.launch(i)
	}
}

// post posts the chains of all paths.
func (l *links) post() {
	if l.posts.Len() == 0 && l.unposted&(l.unposted-1) == 0 { // a packet or few, by one path, need no list
		if l.unposted != 0 {
			k := l.paths[bits.TrailingZeros32(l.unposted)]
			if _, err := k.send.Post(); err != nil {
				l.fails(k, err)
			}
			l.unposted = 0
		}
		return
	}
	for ; l.unposted != 0; l.unposted &= l.unposted - 1 {
		k := l.paths[bits.TrailingZeros32(l.unposted)]
		l.posts.Add(k.send)
		l.posting = append(l.posting, k)
	}
	if err := l.posts.Post(); err != nil {
		for i, p := range l.posts.Results() {
			if p.Err != nil {
				l.fails(l.posting[i], p.Err)
			}
		}
	}
	l.posting = l.posting[:0]
}

func (l *links) tag(k *link, i uint32) uint64 {
	return uint64(k.index)<<40 | uint64(k.life)<<32 | uint64(i)
}

// sent frees a slot, and the unsignaled ones that were sent before it.
func (l *links) sent(k *link, i uint32) {
	s := &l.slots[i]
	f := &l.flushed[s.flush] // or a later one, after so many
	if f.n > 0 {
		l.e.Took(f.n, l.ep.now()-f.at)
		l.ep.polls.grace = l.e.AckDelay()
	}
	for _, j := range s.covers[:s.covered] {
		l.release(k, j)
	}
	s.covered = 0
	l.release(k, i)
}

func (l *links) release(k *link, i uint32) {
	s := &l.slots[i]
	s.h.Uses--
	s.h = nil
	l.free = append(l.free, i)
}

// silent renews the address handles to a peer that has been silent for a while.
func (l *links) silent(to wire.Addr) {
	l.ep.handles.Renew(to.GID)
	l.ep.handles.doubts()
}

// Completed implements [verbs.Engine]: it hands packets to the engine.
func (l *links) Completed(tag uint64, wc *verbs.WC) {
	ep := l.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.closed.Load() {
		return
	}
	k := l.paths[tag>>40&0x3f]
	if uint8(tag>>32) != k.life {
		return // before a reset
	}
	i := uint32(tag)
	ep.polls.beginCompletion()
	defer func() { ep.polls.completing = false }()
	switch {
	case wc.Status() != verbs.WCSuccess:
		if tag&recvBit == 0 && wc.Status() != verbs.WCFlushed { // the way it was to take may be gone
			to, _ := l.wayOf(i)
			ep.handles.Drop(to)
			ep.handles.doubts()
		}
		l.fails(k, wc.Err())
		return
	case tag&recvBit == 0:
		l.sent(k, i)
		if l.e.Wait() == 0 { // it waited for slots
			ep.polls.came()
		}
		return
	}
	if n := wc.Len(); wc.HasGRH() && n >= verbs.GRHSize && n <= l.stride {
		b := l.memory(k.base+int(i), n)
		// What is polled at once came before the first of it was looked at.
		if l.timed++; !ep.polls.stale || l.timed >= timedEach {
			l.timed = 0
			ep.polls.clock = ep.now()
			l.e.Advance(ep.polls.clock)
		}
		from := engine.Source{GID: sourceOf(b), QPN: wc.SrcQP()}
		l.e.Receive(from, b[verbs.GRHSize:])
		ep.toldOfKeys(from)
	}
	k.pending = append(k.pending, i)
	if len(k.pending) >= min(postRecvsEach, k.receives/4) { // three quarters may be on their way
		l.short |= 1 << k.index
	}
	ep.polls.came()
}

// addReceives puts the receives that are to be posted into the path's batch.
func (l *links) addReceives(k *link) {
	for _, i := range k.pending {
		k.recv.Recv(l.d.ID(recvBit|l.tag(k, i)), l.mr.SGE((k.base+int(i))*l.stride, l.stride))
	}
	k.pending = k.pending[:0]
}

// sourceOf returns the sender's GID, as the route header says. RoCE v2 over IPv4 has an
// IPv4 header in its last 20 bytes; the first 20 are undefined then (InfiniBand
// specification, annex A17.4.5.2), and may hold what an earlier datagram left there. As
// ibv_init_ah_from_wc does, it takes a header that may be either for IPv4 if the
// checksum of that is right.
func sourceOf(grh []byte) (gid [16]byte) {
	if grh[20] == 0x45 && (grh[0]>>4 != 6 || checksum(grh[20:40]) == 0) {
		gid[10], gid[11] = 0xff, 0xff
		copy(gid[12:], grh[32:36])
		return gid
	}
	copy(gid[:], grh[8:24])
	return gid
}

// checksum returns the internet checksum of a header, which is 0 if the header has the
// right one (RFC 1071).
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 | uint32(header[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
