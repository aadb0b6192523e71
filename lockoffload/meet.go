package lockoffload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// dialer connects to a target.
type dialer struct {
	pd      *verbs.PD
	address string
	cfg     DialConfig
}

// startingPause is the pause between attempts to get a place at a target that admits no
// clients yet.
const startingPause = 50 * time.Millisecond

// meet makes a queue pair and connects it to one of the target. It waits while the target
// admits no clients yet.
func (d *dialer) meet(ctx context.Context, kind wire.Kind, client uint64) (j joined, remote verbs.Endpoint, err error) {
	for starting := error(nil); ; starting = ErrStarting {
		j, remote, err = d.meetOnce(ctx, kind, client)
		if err != nil && ctx.Err() != nil {
			return j, remote, errors.Join(err, starting)
		}
		if !errors.Is(err, ErrStarting) {
			return j, remote, err
		}
		select {
		case <-time.After(startingPause):
		case <-ctx.Done():
			return j, remote, errors.Join(ctx.Err(), err)
		}
	}
}

func (d *dialer) meetOnce(ctx context.Context, kind wire.Kind, client uint64) (j joined, remote verbs.Endpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	dial := d.cfg.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", d.address)
	if err != nil {
		return j, remote, err
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	gid, err := gidFor(d.pd, d.cfg.GID, conn)
	if err == nil {
		j, err = newJoined(d.pd, gid)
	}
	j.conn = conn
	if err == nil {
		remote, err = d.greet(conn, j.qp, wire.Hello{Kind: kind, Client: client})
	}
	if err == nil {
		err = j.qp.Connect(remote, d.cfg.Connect)
	}
	if err != nil {
		return joined{}, remote, errors.Join(err, ctx.Err(), j.close())
	}
	return j, remote, nil
}

func (d *dialer) greet(conn net.Conn, qp *verbs.QP, h wire.Hello) (remote verbs.Endpoint, err error) {
	c, err := wire.ReadChallenge(conn)
	if err != nil {
		return remote, err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return remote, err
	}
	if h.Body, err = local.AppendBinary(nil); err != nil {
		return remote, err
	}
	rand.Read(h.Nonce[:])
	if _, err := conn.Write(h.Append(nil, d.cfg.Key, c)); err != nil {
		return remote, err
	}
	status, body, err := wire.ReadReply(conn, d.cfg.Key, c, h.Nonce)
	switch {
	case errors.Is(err, wire.ErrKey):
		return remote, ErrDenied
	case err != nil:
		return remote, err
	case status == wire.Full:
		return remote, ErrFull
	case status == wire.Wait:
		return remote, ErrStarting
	case status != wire.Welcome:
		return remote, fmt.Errorf("%w: %s", ErrRefused, body)
	}
	return remote, remote.UnmarshalBinary(body)
}
