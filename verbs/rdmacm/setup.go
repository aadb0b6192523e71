package rdmacm

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Setup describes a connection to the program before it is made, and holds its reply.
type Setup struct {
	Device *verbs.Device  // that the connection leads over
	GID    verbs.GIDEntry // local address, for [verbs.QPConfig.GID]
	Local  netip.AddrPort // local address
	Remote netip.AddrPort // the peer's

	// QP is set by the program: a queue pair made on Device, fresh: in [verbs.StateReset],
	// or in [verbs.StateInit] with its first receives posted. The program that made it
	// closes it.
	QP *verbs.QP
	// PrivateData goes to the peer. It is what the config has, and can be
	// changed here, for example to name memory that was registered just now.
	PrivateData []byte

	peerDecides bool // whether there is a keep-alive
}

// ConnConfig configures a connection. The zero value makes an RC queue pair of its own,
// with a protection domain and a completion queue.
type ConnConfig struct {
	// Setup makes the queue pair, or provides an existing one. It is called when the
	// device is known and before the peer can send; the call ends with its error. For a
	// name with several addresses it is called again for each that is tried after a
	// failure. Nil makes what QP describes.
	Setup func(*Setup) error
	// QP describes the queue pair if Setup is nil. The queue pair, its completion
	// queue ([Conn.CQ]), which has room for all of its work requests, and its
	// protection domain belong to the connection and close with it. SendCQ must
	// be nil.
	QP verbs.QPConfig

	// PrivateData goes to the peer with the request or the reply: at most
	// [MaxRequestData], [MaxAcceptData], and [MaxRequestDataUD],
	// [MaxAcceptDataUD] for datagrams. The peer sees it padded with zeros.
	PrivateData []byte

	// MaxReads is how many READs and atomics may be outstanding in each
	// direction; 0 means what the device can, at most 16, and -1 none. The
	// peer's wish counts too.
	MaxReads int
	// Retries and RNRRetries are as in [verbs.ConnectConfig]. The side that dials
	// decides on Retries for both; each side on RNRRetries for the other.
	Retries    int
	RNRRetries int
	// AckTimeout is how long this side's device waits for an acknowledgement
	// before it sends again, rounded up to 4.096 us * 2^n; 0 means 67 ms, as in
	// [verbs.ConnectConfig]. Datagrams have none.
	AckTimeout time.Duration
}

// Limits of private data, in bytes.
const (
	MaxRequestData   = 56
	MaxAcceptData    = 196
	MaxRejectData    = 148
	MaxRequestDataUD = 180
	MaxAcceptDataUD  = 136
	MaxRejectDataUD  = 136
)

// prepared is a queue pair before its connection.
type prepared struct {
	setup Setup
	dev   *device
	own   []io.Closer // in the order of closing
	cq    *verbs.CQ   // of them
	param cgo.CMParam
}

func (p *prepared) close() error {
	var err error
	for _, o := range p.own {
		err = errors.Join(err, o.Close())
	}
	return err
}

// prepare calls the program's Setup, or does its work, and brings the queue
// pair to StateInit.
func (i *cmID) prepare(cfg *ConnConfig, typ verbs.QPType, maxData int) (*prepared, error) {
	p := &prepared{}
	if err := p.describe(i, cfg.PrivateData); err != nil {
		return nil, err
	}
	err := p.makeQP(cfg, typ)
	if err == nil {
		err = p.check(i, cfg, typ, maxData)
	}
	if err == nil {
		err = i.toInit(p.setup.QP)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *prepared) describe(i *cmID, private []byte) error {
	return i.life.With("describe", func() error {
		ctx := cgo.CMContext(i.id)
		if ctx == 0 {
			return operr.New("describe", i.life.Label, verbs.ErrNoDevice, "bound to no device")
		}
		if err := transport(cgo.ContextTransport(ctx)); err != nil {
			return operr.New("describe", i.life.Label, err, cgo.ContextName(ctx))
		}
		dev, err := i.cm.deviceOf(ctx)
		if err != nil {
			return err
		}
		local, remote := cgo.CMAddrs(i.id)
		p.dev = dev
		p.setup = Setup{Device: dev.dev, Local: local.AddrPort(), Remote: remote.AddrPort(), PrivateData: private}
		q := verbs.GIDQuery{Addr: p.setup.Local.Addr(), Port: cgo.CMPort(i.id)}
		if scope := local.Scope(); scope != 0 {
			q.Addr = q.Addr.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
		p.setup.GID, err = dev.gids.find(dev.dev, q)
		return err
	})
}

// transport refuses devices of iWARP: their kernel part moves the queue pair by
// itself and raises other events, which nothing here waits for.
func transport(transport int32) error {
	const iWARP = 1
	if transport == iWARP {
		return operr.Class(verbs.ErrUnsupported, errors.New("connections over iWARP"))
	}
	return nil
}

func (p *prepared) makeQP(cfg *ConnConfig, typ verbs.QPType) error {
	if cfg.Setup != nil {
		return cfg.Setup(&p.setup)
	}
	qc, pd := cfg.QP, (*verbs.PD)(nil)
	if qc.Type == 0 {
		qc.Type = typ
	}
	qc.GID = p.setup.GID
	if qc.SendCQ != nil {
		return operr.New("set up", "connection", verbs.ErrAttributes, "SendCQ is set: make the queue pair in Setup")
	}
	var err error
	if pd, err = p.setup.Device.AllocPD(); err != nil {
		return err
	}
	p.own = append(p.own, pd)
	cq, err := driver.CreateCQFor(p.setup.Device, qc)
	if err != nil {
		return err
	}
	p.cq = cq
	p.own = append([]io.Closer{cq}, p.own...)
	qc.SendCQ = cq
	if p.setup.QP, err = pd.CreateQP(qc); err != nil {
		return err
	}
	p.own = append([]io.Closer{p.setup.QP}, p.own...)
	kept := 0
	if qc.KeepAlive > 0 {
		kept = 1
	}
	if granted := p.setup.QP.MaxSendWR() + p.setup.QP.MaxRecvWR() + kept; granted > cq.Depth() {
		if err := cq.Resize(granted); err != nil && !errors.Is(err, verbs.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// check fills in what is sent to the peer.
func (p *prepared) check(i *cmID, cfg *ConnConfig, typ verbs.QPType, maxData int) error {
	refuse := func(detail ...any) error {
		return operr.New("set up", i.life.Label, verbs.ErrAttributes, detail...)
	}
	qp, dev := p.setup.QP, p.setup.Device
	attr := dev.Attr()
	switch {
	case qp == nil:
		return refuse("Setup made no queue pair")
	case qp.PD().Device() != dev:
		return refuse("queue pair of another device: see CM")
	case qp.Type() != typ:
		return refuse("queue pair is ", qp.Type(), ", the service ", typ)
	case len(p.setup.PrivateData) > maxData:
		return refuse(len(p.setup.PrivateData), " bytes of private data; at most ", maxData)
	case cfg.Retries < -1 || cfg.Retries > 7 || cfg.RNRRetries < -1 || cfg.RNRRetries > 7:
		return refuse("retries ", cfg.Retries, ", RNR retries ", cfg.RNRRetries, ": at most 7")
	}
	orDefault := func(n, def int) uint8 {
		if n == 0 {
			n = def
		}
		return uint8(max(n, 0))
	}
	limit := func(device int) uint8 {
		if cfg.MaxReads == 0 {
			return uint8(min(device, 16))
		}
		return uint8(max(min(device, cfg.MaxReads, 255), 0))
	}
	p.param = cgo.CMParam{
		QPN:                qp.Num(),
		ResponderResources: limit(attr.MaxReadAtomic),
		InitiatorDepth:     limit(attr.MaxInitRead),
		RetryCount:         orDefault(cfg.Retries, verbs.DefaultRetries),
		RNRRetryCount:      orDefault(cfg.RNRRetries, verbs.DefaultRNRRetries),
		PrivateData:        bytes.Clone(p.setup.PrivateData),
	}
	return nil
}
