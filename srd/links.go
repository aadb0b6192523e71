package srd

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// links are the UD queue pairs of an endpoint, each a path, and their memory.
type links struct {
	ep     *Endpoint
	e      *engine.Engine
	out    engine.Out
	cq     *verbs.CQ
	d      *verbs.Dispatcher
	mr     *verbs.MR
	stride int // of the memory of a packet
	paths  []*link

	unposted uint32 // paths with packets in their chain
	short    uint32 // paths with receives to be posted again
	posts    verbs.Batches
	posting  []*link // whose batches are in posts

	timed   uint8 // packets that were taken since the clock was read
	flushes uint8
	flushed [256]struct { // the last ones
		at time.Duration
		n  int // packets
	}

	slots  []slot
	free   []uint32 // slots to send from
	parked []uint32 // that wait for an address handle
}

// link is one of them. Its receives are few, unless it is the first, whose number is
// the endpoint's.
type link struct {
	qp       *verbs.QP
	index    int
	label    uint32 // of the address handles by which it sends; 0: the device needs none
	life     uint8  // of the queue pair: it is reset when it fails
	broken   bool
	cause    error // of that
	send     *verbs.Batch
	recv     *verbs.RecvBatch
	receives int
	base     int // offset of their memory
	pending  []uint32
	silent   []uint32 // slots that were sent and ask for no completion
	told     uint8    // packets that asked for one, up to firstTold
	flying   int
}

// slot is memory for a packet that is sent.
type slot struct {
	h      *handle
	to     wire.Addr
	length int
	path   uint8
	// covered slots before it complete with it: an array, since each slot comes to cover
	// others sooner or later.
	covers  [signalEvery - 1]uint32
	covered uint8
	flush   uint8 // which one sent it

	stranger bool // nothing is known of whom it is for
}

const (
	sendSlots   = 256
	fewReceives = 16
	signalEvery = 8
	firstTold   = 2 // packets of a path ask for a completion each: the host's times are learned from them
	mostParked  = 64

	strangersParked = 16 // others are asked again when they greet again
	recvBit         = 1 << 47
	postRecvsEach   = 16
	timedEach       = 16 // packets that come at once have the clock read again
)

func newLinks(ep *Endpoint) error {
	l := &links{ep: ep}
	ep.driver = l
	cfg := &ep.cfg
	if cfg.QKey == 0 {
		cfg.QKey = verbs.DefaultQKey
	}
	dev := cfg.PD.Device()
	port, err := dev.Port(ep.gid.Port)
	if err != nil {
		return err
	}
	mtu, err := dev.LocalMTU(ep.gid)
	if err != nil {
		return err
	}
	l.stride = verbs.GRHSize + max(port.MaxMTU.Bytes(), wire.MaxHeaders)
	all := cfg.Receives + (cfg.Paths-1)*fewReceives
	depth := all + sendSlots
	if l.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: depth}); err != nil {
		return err
	}
	if l.d, err = l.cq.Dispatch(l, depth); err != nil {
		return err
	}
	ep.d = l.d
	if l.mr, err = cfg.PD.AllocMR((all+sendSlots)*l.stride, verbs.MRConfig{}); err != nil {
		return err
	}
	base := 0
	for i := range cfg.Paths {
		k := &link{index: i, receives: fewReceives, base: base, silent: make([]uint32, 0, signalEvery)}
		if i == 0 {
			k.receives = cfg.Receives
		}
		base += k.receives
		if k.qp, err = cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: l.cq, GID: ep.gid, QKey: cfg.QKey,
			MaxSendWR: sendSlots, MaxRecvWR: k.receives, MaxInline: 192}); err != nil {
			return err
		}
		if !dev.SoftRoCE() {
			// Multiplied, numbers that follow each other have ports that do not.
			k.label = verbs.FlowLabelFor(uint16(k.qp.Num() * 40503))
		}
		l.paths = append(l.paths, k)
		if k.send, err = l.d.NewBatch(k.qp, 64); err != nil {
			return err
		}
		if k.recv, err = l.d.NewRecvBatch(k.qp, k.receives); err != nil {
			return err
		}
	}
	l.slots = make([]slot, sendSlots)
	for i := range l.slots {
		l.free = append(l.free, uint32(i))
	}
	seed, key, err := ep.secrets()
	if err != nil {
		return err
	}
	ep.addr = Addr{GID: ep.gid.GID, QPN: l.paths[0].qp.Num(), QKey: cfg.QKey}
	c := cfg.engine()
	c.Silent, c.Boot = l.silent, func() time.Duration { return time.Duration(boottime.Now().UnixNano()) }
	c.Addr, c.Host, c.Wall, c.Seed, c.Key, c.MTU = ep.addr.wire(), (*host)(ep), uint64(time.Now().UnixNano()), seed, key, mtu.Bytes()
	l.e = engine.New(c)
	ep.e = l.e
	return nil
}

// engine is what of a configuration is the engine's.
func (cfg *Config) engine() engine.Config {
	return engine.Config{
		Paths: cfg.Paths, MaxPeers: cfg.MaxPeers, MaxMessage: cfg.MaxMessage, Budget: cfg.Receives * 3 / 4,
		MinTimeout: cfg.minTimeout, AckDelay: cfg.ackDelay, PeerTimeout: cfg.PeerTimeout,
	}
}

// begin lets packets in.
func (l *links) begin() error {
	for _, k := range l.paths {
		if err := l.fill(k); err != nil {
			return err
		}
	}
	return nil
}

// fill posts all receives of a queue pair in INIT, and brings it to work.
func (l *links) fill(k *link) error {
	k.pending = k.pending[:0]
	for i := range k.receives {
		k.pending = append(k.pending, uint32(i))
	}
	l.addReceives(k)
	if _, err := k.recv.Post(); err != nil {
		return err
	}
	return k.qp.Activate()
}

// addReceives puts the receives that are to be posted into the path's batch.
func (l *links) addReceives(k *link) {
	for _, i := range k.pending {
		k.recv.Recv(l.d.ID(recvBit|l.tag(k, i)), l.mr.SGE((k.base+int(i))*l.stride, l.stride))
	}
	k.pending = k.pending[:0]
}

func (l *links) tag(k *link, i uint32) uint64 {
	return uint64(k.index)<<40 | uint64(k.life)<<32 | uint64(i)
}

// sendAt is where the memory of a slot begins.
func (l *links) sendAt(i uint32) int {
	last := l.paths[len(l.paths)-1]
	return (last.base + last.receives + int(i)) * l.stride
}

// Completed is [verbs.Engine]'s: it hands packets to the engine.
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
	ep.comes()
	defer func() { ep.polling = false }()
	switch {
	case wc.Status() != verbs.WCSuccess:
		if tag&recvBit == 0 && wc.Status() != verbs.WCFlushed { // the way it was to take may be gone
			to := l.way(l.slots[i].to.GID, k.index)
			if h := ep.handles.of[to]; h != nil {
				ep.handles.drop(to, h)
			}
			ep.handles.doubts()
		}
		l.fails(k, wc.Err())
		return
	case tag&recvBit == 0:
		l.sent(k, i)
		if l.e.Wait() == 0 { // it waited for slots
			ep.came()
		}
		return
	}
	at := (k.base + int(i)) * l.stride
	if n := wc.Len(); wc.HasGRH() && n >= verbs.GRHSize && n <= l.stride {
		b := l.mr.Bytes()[at:][:n]
		// What is polled at once came before the first of it was looked at.
		if l.timed++; !ep.stale || l.timed >= timedEach {
			l.timed = 0
			ep.clock = ep.now()
			l.e.Advance(ep.clock)
		}
		from := engine.Source{GID: sourceOf(b), QPN: wc.SrcQP()}
		l.e.Receive(from, b[verbs.GRHSize:])
		ep.toldOfKeys(from)
	}
	k.pending = append(k.pending, i)
	if len(k.pending) >= min(postRecvsEach, k.receives/4) { // three quarters may be on their way
		l.short |= 1 << k.index
	}
	ep.came()
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

// silent has the address handles to a peer that has been silent for a while renewed.
func (l *links) silent(to wire.Addr) {
	for _, k := range l.paths {
		l.ep.handles.renew(l.way(to.GID, k.index))
	}
	l.ep.handles.doubts()
}

// Lost is [verbs.Engine]'s.
func (l *links) Lost(err error) { l.ep.fail(err) }

// sent frees a slot, and those that were sent before it in silence.
func (l *links) sent(k *link, i uint32) {
	s := &l.slots[i]
	f := &l.flushed[s.flush] // or a later one, after so many
	if f.n > 0 {
		l.e.Took(f.n, l.ep.now()-f.at)
		l.ep.grace = l.e.AckDelay()
	}
	for _, j := range s.covers[:s.covered] {
		l.release(k, j)
	}
	s.covered = 0
	l.release(k, i)
}

func (l *links) release(k *link, i uint32) {
	s := &l.slots[i]
	s.h.uses--
	s.h = nil
	k.flying--
	l.free = append(l.free, i)
}

// flush has the engine send what it may, and posts it by one call: a chain for each path.
// Receives go first: a response lets the peer fill them.
func (l *links) flush() {
	for ; l.short != 0; l.short &= l.short - 1 {
		if k := l.paths[bits.TrailingZeros32(l.short)]; !k.broken {
			l.addReceives(k)
			l.posts.AddRecv(k.recv)
			l.posting = append(l.posting, k)
		}
	}
	l.handsOver(l.ep.clock)
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
			gather(b[o.Headers:][:o.Length], l.ep.requests[uint32(o.Tag)].data, o.Offset)
		}
		l.e.Seal(o, b[:o.Headers], b[o.Headers:][:o.Length])
		s := &l.slots[i]
		s.to, s.length, s.path, s.stranger = o.To, o.Headers+o.Length, o.Path, o.Stranger
		l.launch(i)
	}
	l.post()
}

// handsOver notes when the packets that come next are handed to the device.
func (l *links) handsOver(now time.Duration) {
	if l.flushed[l.flushes].n > 0 {
		l.flushes++
	}
	l.flushed[l.flushes].at, l.flushed[l.flushes].n = now, 0
}

// way returns the way to a port by a path. With very many hosts several paths have one.
func (l *links) way(to verbs.GID, path int) way {
	return way{to, l.paths[path%l.ep.handles.share()].label}
}

// launch adds a packet to its path's chain, or has it wait for an address handle.
func (l *links) launch(i uint32) {
	s := &l.slots[i]
	k := l.paths[s.path]
	h, coming := l.ep.handles.get(l.way(s.to.GID, k.index), s.stranger)
	switch {
	case h == nil && len(l.parked) < mostParked && (!s.stranger || coming && len(l.parked) < strangersParked):
		l.parked = append(l.parked, i)
		return
	case h == nil || k.broken: // as if it were lost
		l.free = append(l.free, i)
		return
	}
	if k.send.Len() == k.send.Cap() {
		l.post()
	}
	s.h, s.flush = h, l.flushes
	l.flushed[l.flushes].n++
	h.uses++
	k.flying++
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
	k.send.SendTo(l.d.ID(l.tag(k, i)), flags, verbs.Dest{AH: h.ah, QPN: s.to.QPN, QKey: s.to.QKey}, l.mr.SGE(l.sendAt(i), s.length))
}

func (l *links) urgent() bool { return l.short != 0 }
func (l *links) full() bool   { return len(l.free) == 0 }

// lost gives up what waits for an address handle that cannot be made, as if the network
// had lost it. The other handles may have been too many to be asked for at once.
func (l *links) lost(to way) {
	parked := l.parked[:0]
	for _, i := range l.parked {
		s := &l.slots[i]
		w := l.way(s.to.GID, int(s.path))
		if w == to {
			l.free = append(l.free, i)
			continue
		}
		l.ep.handles.get(w, s.stranger)
		parked = append(parked, i)
	}
	l.parked = parked
}

// resume launches what waited for address handles.
func (l *links) resume() {
	waiting := l.parked
	l.parked = nil
	l.handsOver(l.ep.now()) // that they waited says nothing of the device
	for _, i := range waiting {
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

// fails has a queue pair mended. Requests that are flushed do not tell the cause.
func (l *links) fails(k *link, err error) {
	if !k.broken {
		k.broken, k.cause = true, err
		l.e.Stats.Broken++
	}
	if errors.Is(k.cause, verbs.WCFlushed) {
		k.cause = err
	}
	l.ep.nudge()
}

// mend resets queue pairs that failed: Soft-RoCE gives one up when a datagram cannot be
// sent. What was in them is lost, as packets may be.
func (l *links) mend() (all bool) {
	all = true
	for _, k := range l.paths {
		if !k.broken {
			continue
		}
		l.ep.logs.log(slog.LevelWarn, "srd: path failed", "path", k.index, "err", k.cause)
		if err := l.restart(k); err != nil {
			l.ep.logs.log(slog.LevelError, "srd: path cannot be mended", "path", k.index, "err", err)
			all = false
			continue
		}
		k.broken = false
	}
	return all
}

func (l *links) restart(k *link) error {
	if err := k.qp.Quiesce(); err != nil {
		return err
	}
	k.life++
	for i := range l.slots {
		if s := &l.slots[i]; s.h != nil && int(s.path) == k.index {
			s.covered = 0
			l.release(k, uint32(i))
		}
	}
	k.silent = k.silent[:0]
	k.send.Reset()
	k.recv.Reset()
	if err := k.qp.Init(); err != nil {
		return err
	}
	return l.fill(k)
}

// close ends everything; nobody may be inside any more.
func (l *links) close() error {
	var errs []error
	for _, k := range l.paths {
		errs = append(errs, k.qp.Close())
	}
	if l.d != nil {
		errs = append(errs, l.d.Close())
	}
	errs = append(errs, l.ep.handles.close()...)
	if l.mr != nil {
		errs = append(errs, l.mr.Close())
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("srd: close: %w", err)
	}
	return nil
}
