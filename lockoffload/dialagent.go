package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
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
	c, err := d.caller(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("lockoffload: dial the agent of %s: %w", address, err)
	}
	return c, nil
}

// caller returns a client of the target's agent, with an identifier of its own. of is nil if
// the target is not known yet.
func (d *dialer) caller(ctx context.Context, of *target) (*Caller, error) {
	l := &agentDialer{d: d, client: rand.Uint64()}
	var err error
	if l.now, l.agreed, err = d.meetAgent(ctx, l.client); err != nil {
		return nil, err
	}
	var c *Caller
	if of != nil {
		err = of.accepts(l.agreed.target)
	}
	if err == nil {
		c, err = NewCaller(ctx, CallerConfig{PD: d.pd, Layout: l.agreed.target.layout, Limits: l.agreed.limits, Client: l.client, Connect: l.connect})
	}
	if err != nil {
		return nil, errors.Join(err, l.now.close())
	}
	c.dialed = l
	return c, nil
}

// agentDialer connects a caller that dialed to the target's agent.
type agentDialer struct {
	d      *dialer
	client uint64
	agreed terms
	now    joined
	given  bool // the first connection is the caller's
}

// redialTime is how long the agent is looked for when the connection has failed.
const redialTime = 2 * time.Second

// connect implements [CallerConfig.Connect].
func (l *agentDialer) connect(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
	if l.given {
		if err := l.redial(ctx); err != nil {
			return nil, nil, err
		}
	}
	l.given = true
	return l.now.qp, l.now.cq, nil
}

func (l *agentDialer) redial(ctx context.Context) error {
	began := time.Now()
	for pauses := backoff.New(10*time.Millisecond, time.Second); ; {
		j, t, err := l.d.meetAgent(ctx, l.client)
		if err == nil {
			if err = t.keep(l.agreed); err == nil {
				l.replace(j)
				return nil
			}
			err = errors.Join(err, j.close())
		}
		if errors.Is(err, ErrRestarted) || time.Since(began) > redialTime {
			return err
		}
		if over := pauses.Wait(ctx); over != nil {
			return errors.Join(over, err)
		}
	}
}

func (l *agentDialer) replace(j joined) {
	if err := l.now.close(); err != nil { // such as TLS's, of a connection that was reset
		l.d.cfg.Logger.Error("lockoffload: old connection", "error", err)
	}
	l.now = j
}

// terms are the limits and the target that an agent sends to its clients.
type terms struct {
	limits ChainLimits
	target target
}

type wireTerms struct {
	Window, Message uint32
	Target          wireTarget
}

func (t terms) append(b []byte) []byte {
	b, _ = binary.Append(b, binary.BigEndian, wireTerms{uint32(t.limits.Window), uint32(t.limits.Message), t.target.wire()})
	return b
}

func decodeTerms(b []byte) (t terms, err error) {
	var w wireTerms
	if n, err := binary.Decode(b, binary.BigEndian, &w); err != nil || n != len(b) {
		return t, fmt.Errorf("%w: terms of the agent", ErrMessage)
	}
	t.limits = ChainLimits{int(w.Window), int(w.Message)}
	t.target, err = w.Target.target()
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
	keepAlive(j.conn)
	_, _ = io.Copy(io.Discard, j.conn)
	_ = j.qp.ToError() // unless it was closed, too
}

// keepAlive has the connection of a host that died end after about ten seconds.
func keepAlive(conn net.Conn) {
	if tcp, ok := overTCP(conn); ok {
		// An error says that it is closed, which reading from it says too.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3})
	}
}

// overTCP returns the TCP connection below conn, also below TLS.
func overTCP(conn net.Conn) (*net.TCPConn, bool) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	return tcp, ok
}
