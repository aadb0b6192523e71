package verbs

import (
	"errors"
	"fmt"
	"time"
)

// ConnectConfig configures a connection. The zero value is fine.
type ConnectConfig struct {
	// MTU defaults to the smaller of the two endpoints'. It must not exceed
	// what the port and the netdev of the local GID carry ([Device.LocalMTU]).
	MTU MTU
	// AckTimeout is how long the device waits for an acknowledgement before it retries; 0
	// means 67 ms. It is rounded up to 4.096 us * 2^n.
	AckTimeout time.Duration
	// Retries is how often it retries, 1 to 7, or -1 for never; 0 means 6. A dead peer
	// shows as [WCRetryExceeded] after about AckTimeout * (Retries + 1), half a second by
	// default; NICs wait up to four times as long. Soft-RoCE takes 7 as retries without
	// end.
	Retries int
	// RNRRetries is how often it tries a peer without a posted receive, 1 to
	// 6, 7 for ever, -1 for never; 0 means 7.
	RNRRetries int
	// RNRTimer is how long the peer is told to wait when a receive is missing
	// here; 0 means 0.64 ms.
	RNRTimer time.Duration
	// MaxReads is how many READs and atomics may be outstanding in each direction; 0
	// means what the device can, at most 16, and -1 none. If the peer's endpoint says
	// fewer ([Endpoint.MaxReads]), it is as many.
	MaxReads int
	// TrafficClass, HopLimit and FlowLabel go into the packets of RoCE v2.
	// FlowLabel, of 20 bits, chooses their UDP source port: see [FlowLabelFor].
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32
	// ServiceLevel is for InfiniBand, and for the priority of RoCE frames; 0
	// means what the peer's endpoint says.
	ServiceLevel uint8
	// SrcPathBits are added to the port's LID in the packets, and StaticRate (enum
	// ibv_rate) keeps them from overrunning a slower port. InfiniBand only.
	SrcPathBits uint8
	StaticRate  uint8
	// Global adds a route header on InfiniBand also where the peer is in the
	// same subnet. Elsewhere there always is one.
	Global bool
}

// Defaults of every connection.
const (
	DefaultRetries    = 6
	DefaultRNRRetries = 7
	DefaultAckTimeout = 4096 * time.Nanosecond << 14
)

// Connect moves an RC or UC queue pair from [StateInit] to [StateRTS],
// connected to the remote endpoint. Post the first receives before it: the
// peer may send as soon as its own Connect returns.
func (q *QP) Connect(remote Endpoint, cfg ConnectConfig) error {
	if err := q.life.Open("connect"); err != nil {
		return err
	}
	c, err := cfg.resolve(q, remote)
	if err != nil {
		return err
	}
	rtr := QPAttr{
		State: StateRTR, PathMTU: c.MTU, DestQPN: remote.QPN, RQPSN: remote.PSN,
		AH:                c.path(q.gid, remote),
		MaxDestReadAtomic: uint8(c.MaxReads), MinRNRTimer: RNRTimerFor(c.RNRTimer),
	}
	rts := QPAttr{
		State: StateRTS, SQPSN: q.psn, Timeout: AckTimeoutFor(c.AckTimeout),
		RetryCount: uint8(max(c.Retries, 0)), RNRRetry: uint8(max(c.RNRRetries, 0)), MaxReadAtomic: uint8(c.MaxReads),
	}
	rtrMask, rtsMask := AttrState|connAV, AttrState|AttrSQPSN
	if q.typ == RC {
		rtrMask |= AttrMaxDestReadAtomic | AttrMinRNRTimer
		rtsMask |= AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrMaxReadAtomic
	}
	q.setPeer(fmt.Sprintf("qp %#x at %v", remote.QPN, remote.GID.Addr()))
	if err := q.acceptECE(remote.ECE); err != nil {
		return err
	}
	if err := q.Modify(rtr, rtrMask); err != nil {
		return err
	}
	if err := q.Modify(rts, rtsMask); err != nil {
		return err
	}
	q.keepAlive()
	return nil
}

func (c ConnectConfig) resolve(q *QP, remote Endpoint) (ConnectConfig, error) {
	refuse := func(detail ...any) (ConnectConfig, error) {
		return c, opError("connect", q.life.Label, ErrAttributes, detail...)
	}
	if q.typ == UD {
		return refuse("UD has no connection: use Activate and CreateAH")
	}
	if remote.Type != q.typ {
		return refuse("this side is ", q.typ, ", the peer ", remote.Type)
	}
	c, err := c.withDefaults(q, remote.MTU)
	if err != nil {
		return c, err
	}
	if remote.MaxReads != 0 {
		c.MaxReads = min(c.MaxReads, max(remote.MaxReads, 0))
	}
	return c, q.checkPath("connect", remote)
}

// PathTo is the way from the queue pair to a peer, as Connect takes it, for
// [PD.CreateAH]: by GID on Ethernet; by LID on InfiniBand, with a route header
// only if the peer's subnet is another one or cfg.Global says so.
func (q *QP) PathTo(remote Endpoint, cfg ConnectConfig) (AHAttr, error) {
	const op = "find path from"
	if err := q.life.Open(op); err != nil {
		return AHAttr{}, err
	}
	if err := q.checkPath(op, remote); err != nil {
		return AHAttr{}, err
	}
	return cfg.path(q.gid, remote), nil
}

func (q *QP) checkPath(op string, remote Endpoint) error {
	port, err := q.pd.dev.Port(q.gid.Port)
	if err != nil {
		return err
	}
	return opError(op, q.life.Label, reachable(port.LinkLayer, remote))
}

// reachable says what a peer's endpoint lacks. EFA is neither of the two link
// layers, and goes by GID.
func reachable(link LinkLayer, remote Endpoint) error {
	switch {
	case link == LinkInfiniBand && remote.LID == 0:
		return class(ErrAttributes, errors.New("the peer has no LID: is its port InfiniBand too, and active?"))
	case link != LinkInfiniBand && remote.GID == (GID{}):
		return class(ErrAttributes, class(ErrNoGID, errors.New("the peer has none")))
	}
	return nil
}

// path is the address vector from a local port to a peer.
func (c ConnectConfig) path(local GIDEntry, remote Endpoint) AHAttr {
	a := AHAttr{Port: local.Port, SL: c.ServiceLevel}
	if a.SL == 0 {
		a.SL = remote.SL
	}
	if local.Type == GIDInfiniBand && remote.LID != 0 {
		a.DLID, a.SrcPathBits, a.StaticRate = remote.LID, c.SrcPathBits, c.StaticRate
		if remote.GID == (GID{}) || !c.Global && remote.GID.subnet() == local.GID.subnet() {
			return a
		}
	}
	a.GID, a.SGIDIndex = remote.GID, local.Index
	a.HopLimit, a.TrafficClass, a.FlowLabel = c.HopLimit, c.TrafficClass, c.FlowLabel
	return a
}

// setPeer is [driver.SetPeer].
func (q *QP) setPeer(name string) { q.peer.Store(&name) }

// reads is MaxReads with its default.
func (c ConnectConfig) reads(d *Device) int {
	if c.MaxReads == 0 {
		return min(d.readLimit(), 16)
	}
	return max(c.MaxReads, 0)
}

// withDefaults fills in what was left to the device and checks the rest.
func (c ConnectConfig) withDefaults(q *QP, peer MTU) (ConnectConfig, error) {
	refuse := func(detail ...any) (ConnectConfig, error) {
		return c, opError("connect", q.life.Label, ErrAttributes, detail...)
	}
	dev := q.pd.dev
	port, err := dev.Port(q.gid.Port)
	if err != nil {
		return c, err
	}
	own, err := dev.mtuOn(port, q.gid)
	if err != nil {
		return c, err
	}
	if c.MTU == 0 {
		c.MTU = min(own, peer)
	}
	if c.MTU.Bytes() == 0 || c.MTU > own {
		return refuse("MTU of ", c.MTU.Bytes(), " bytes; the port has ", port.ActiveMTU.Bytes(), ", its netdev carries ", own.Bytes())
	}
	if c.Retries == 0 {
		c.Retries = DefaultRetries
	}
	if c.RNRRetries == 0 {
		c.RNRRetries = DefaultRNRRetries
	}
	if c.Retries < -1 || c.Retries > 7 || c.RNRRetries < -1 || c.RNRRetries > 7 {
		return refuse("retries ", c.Retries, ", RNR retries ", c.RNRRetries, ": at most 7")
	}
	if c.FlowLabel>>flowLabelBits != 0 {
		return refuse(fmt.Sprintf("flow label %#x has more than %d bits", c.FlowLabel, flowLabelBits))
	}
	if c.AckTimeout < 0 || c.RNRTimer < 0 {
		return refuse("negative time")
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = DefaultAckTimeout
	}
	if c.RNRTimer == 0 {
		c.RNRTimer = RNRTimer(12).Duration()
	}
	if limit := dev.readLimit(); c.MaxReads < -1 || c.MaxReads > limit {
		return refuse("MaxReads ", c.MaxReads, "; the device allows ", limit)
	}
	c.MaxReads = c.reads(dev)
	return c, nil
}
