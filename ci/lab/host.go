package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// Host is one of the hosts of the topology hosts=N, by its number.
type Host int

// Result is how a program on another host ended.
type Result struct {
	Code           int // exit status
	Stdout, Stderr []byte
}

// Kill ends the host like a power failure.
func (h Host) Kill(ctx context.Context) error {
	_, err := ask(ctx, proto.Message{Op: proto.OpKill, Host: int(h)})
	return err
}

// Start boots a host that was killed. It comes up as new: nothing that it had
// in memory is left.
func (h Host) Start(ctx context.Context) error {
	_, err := ask(ctx, proto.Message{Op: proto.OpStart, Host: int(h)})
	return err
}

// Exec runs a program on the host to its end. When ctx ends first, Exec
// returns and the program goes on.
func (h Host) Exec(ctx context.Context, argv ...string) (Result, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Result{}, err
	}
	m, err := ask(ctx, proto.Message{Op: proto.OpExec, Host: int(h), Argv: proto.Bytes(argv), Dir: []byte(dir)})
	return Result{m.Code, m.Stdout, m.Stderr}, err
}

func ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	if !In() {
		return m, ErrOutside
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", proto.Socket)
	if err != nil {
		return m, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c := proto.NewConn(conn)
	if err := c.Send(m); err != nil {
		return m, err
	}
	reply, err := c.Receive()
	switch {
	case ctx.Err() != nil:
		return reply, ctx.Err()
	case err != nil:
		return reply, fmt.Errorf("%s host %d: %w", m.Op, m.Host, err)
	case reply.Error != "":
		return reply, fmt.Errorf("%s host %d: %w", m.Op, m.Host, errors.New(reply.Error))
	}
	return reply, nil
}
