package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// DialAgent makes a client of the agent of the target that listens at an address, without a
// session of its own: it changes and reads records by chains alone. The queue pair is the
// caller's, and is closed with it. When the connection breaks, the caller makes another
// one, and gives up when that fails for two seconds, or with [ErrRestarted] at once.
func DialAgent(ctx context.Context, pd *verbs.PD, address string, cfg DialConfig) (*Caller, error) {
	if err := ctx.Err(); err != nil {
		return nil, opErrorf("dial the agent of "+address, err)
	}
	d, err := newDialer(pd, address, cfg)
	if err != nil {
		return nil, err
	}
	c, free, err := d.caller(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("lockoffload: dial the agent of %s: %w", address, err)
	}
	c.dialed = free
	return c, nil
}

// terms are the limits and the target that an agent sends to its clients.
type terms struct {
	limits ChainLimits
	target target
}

func (t terms) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(t.limits.Window))
	b = binary.BigEndian.AppendUint32(b, uint32(t.limits.Message))
	return t.target.append(b)
}

func decodeTerms(b []byte) (t terms, err error) {
	if len(b) != 8+targetSize {
		return t, fmt.Errorf("%w: terms of the agent", ErrMessage)
	}
	t.limits = ChainLimits{int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[4:]))}
	t.target, err = decodeTarget(b[8:])
	return t, err
}

// keep returns an error unless t equals the agreed terms.
func (t terms) keep(agreed terms) error {
	if err := agreed.target.accepts(t.target); err != nil {
		return err
	}
	if t.limits != agreed.limits {
		return fmt.Errorf("%w: the agent has other limits now", ErrConfig)
	}
	return nil
}

// caller returns a client of the target's agent, with an identifier of its own, and a
// function that frees its connections. of is nil if the target is not known yet.
func (d *dialer) caller(ctx context.Context, of *target) (*Caller, func() error, error) {
	id := rand.Uint64()
	var mu sync.Mutex
	var now joined
	closeNow := func() error {
		mu.Lock()
		defer mu.Unlock()
		err := now.close()
		now = joined{}
		return err
	}
	first, agreed, err := d.meetAgent(ctx, id)
	if err == nil && of != nil {
		if err = of.accepts(agreed.target); err != nil {
			err = errors.Join(err, first.close())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	connect := func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
		j, again := first, terms{}
		first = joined{}
		if j.qp == nil { // not the first time
			for pause := 10 * time.Millisecond; ; pause *= 2 {
				var err error
				if j, again, err = d.meetAgent(ctx, id); err == nil {
					if err = again.keep(agreed); err == nil {
						break
					}
					err = errors.Join(err, j.close())
				}
				if pause > time.Second || errors.Is(err, ErrRestarted) {
					return nil, nil, err
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return nil, nil, errors.Join(ctx.Err(), err)
				}
			}
		}
		if err := closeNow(); err != nil { // such as TLS's, of a connection that was reset
			d.cfg.Logger.Error("lockoffload: old connection", "error", err)
		}
		mu.Lock()
		now = j
		mu.Unlock()
		return j.qp, j.cq, nil
	}
	c, err := NewCaller(ctx, CallerConfig{PD: d.pd, Layout: agreed.target.layout, Limits: agreed.limits, Client: id, Connect: connect})
	if err != nil {
		return nil, nil, errors.Join(err, first.close(), closeNow())
	}
	return c, closeNow, nil
}

// meetAgent connects to the agent. Its place lasts as long as the TCP connection.
func (d *dialer) meetAgent(ctx context.Context, id uint64) (j joined, t terms, err error) {
	j, remote, err := d.meet(ctx, wire.Agent, id)
	if err != nil {
		return j, t, err
	}
	if t, err = decodeTerms(remote.Data); err == nil {
		_, err = j.conn.Write([]byte{wire.Connected})
	}
	if err != nil {
		return joined{}, t, errors.Join(err, j.close())
	}
	go j.follow()
	return j, t, nil
}

// follow moves the queue pair to ERROR when the target ends the connection: the target
// closes both together, and a device that retransmits without end would not notice.
func (j joined) follow() {
	if tcp, ok := overTCP(j.conn); ok {
		_ = tcp.SetKeepAliveConfig(agentKeepAlive) // closed already
	}
	_, _ = io.Copy(io.Discard, j.conn)
	_ = j.qp.ToError() // unless it was closed, too
}

// agentKeepAlive has the connection of a host that died end after about ten seconds.
var agentKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3}

// overTCP returns the TCP connection below conn, also below TLS.
func overTCP(conn net.Conn) (*net.TCPConn, bool) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	return tcp, ok
}
