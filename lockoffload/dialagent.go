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

// caller makes a client of the target's agent, under a name of its own, and what frees
// its connections.
func (d *dialer) caller(ctx context.Context, layout Layout) (*Caller, func() error, error) {
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
	first, limits, err := d.meetAgent(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	connect := func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
		j, again := first, ChainLimits{}
		first = joined{}
		if j.qp == nil { // not the first time
			for pause := 10 * time.Millisecond; ; pause *= 2 {
				var err error
				if j, again, err = d.meetAgent(ctx, id); err == nil && again != limits {
					err = errors.Join(fmt.Errorf("%w: the agent has other limits now", ErrConfig), j.close())
				}
				if err == nil {
					break
				}
				if pause > time.Second {
					return nil, nil, err
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return nil, nil, errors.Join(ctx.Err(), err)
				}
			}
		}
		err := closeNow()
		mu.Lock()
		now = j
		mu.Unlock()
		return j.qp, j.cq, err
	}
	c, err := NewCaller(ctx, CallerConfig{PD: d.pd, Layout: layout, Limits: limits, Client: id, Connect: connect})
	if err != nil {
		return nil, nil, errors.Join(err, first.close(), closeNow())
	}
	return c, closeNow, nil
}

// meetAgent connects to the agent. Its place lasts as long as the TCP connection.
func (d *dialer) meetAgent(ctx context.Context, id uint64) (j joined, limits ChainLimits, err error) {
	j, remote, err := d.meet(ctx, wire.Agent, id)
	if err != nil {
		return j, limits, err
	}
	if len(remote.Data) != 8 {
		err = fmt.Errorf("%w: limits of the agent", ErrMessage)
	} else {
		limits = ChainLimits{int(binary.BigEndian.Uint32(remote.Data)), int(binary.BigEndian.Uint32(remote.Data[4:]))}
		_, err = j.conn.Write([]byte{wire.Connected})
	}
	if err != nil {
		return joined{}, limits, errors.Join(err, j.close())
	}
	go j.follow()
	return j, limits, nil
}

// follow ends the queue pair when the target ends the connection: it does both together,
// and a device that sends again without end would not notice by itself.
func (j joined) follow() {
	if tcp, ok := overTCP(j.conn); ok {
		_ = tcp.SetKeepAliveConfig(agentKeepAlive) // closed already
	}
	_, _ = io.Copy(io.Discard, j.conn)
	_ = j.qp.ToError() // unless it was closed, too
}

// agentKeepAlive has the connection of a host that died end after about ten seconds.
var agentKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3}

// overTCP is the TCP connection that there is below, also below TLS.
func overTCP(conn net.Conn) (*net.TCPConn, bool) {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	return tcp, ok
}
