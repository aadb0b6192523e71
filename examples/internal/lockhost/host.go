// Package lockhost connects the lockoffload examples: a host with locked memory,
// and clients that find it by TCP.
package lockhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// Open opens the device, or with an empty name [verbs.OpenDefault]'s.
func Open(name string) (*verbs.PD, error) {
	var dev *verbs.Device
	var err error
	if name == "" {
		dev, err = verbs.OpenDefault(verbs.DeviceConfig{})
	} else {
		dev, err = verbs.Open(name, verbs.DeviceConfig{})
	}
	if err != nil {
		return nil, err
	}
	return dev.AllocPD()
}

// What a client wants with a TCP connection: a kind, and its number.
const (
	wantLocks = 'L'
	wantAgent = 'A'
	helloSize = 9
)

// ListenAndServe is Serve at a TCP port of this host.
func ListenAndServe(ctx context.Context, port string, pd *verbs.PD, layout lockoffload.Layout, lease time.Duration) error {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	return Serve(ctx, l, pd, layout, lease)
}

// Serve lays out a region and admits everybody who comes, until the context
// ends.
func Serve(ctx context.Context, l net.Listener, pd *verbs.PD, layout lockoffload.Layout, lease time.Duration) error {
	mr, err := pd.AllocMR(layout.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	if err != nil {
		return err
	}
	defer mr.Close()
	region, err := lockoffload.NewRegion(mr, layout)
	if err != nil {
		return err
	}
	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: pd, Region: region, Lease: lease})
	if err != nil {
		return err
	}
	defer srv.Close()
	agent, err := lockoffload.NewAgent(lockoffload.AgentConfig{PD: pd, Region: region})
	if err != nil {
		return err
	}
	defer agent.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var qps []*verbs.QP // of the agent's clients
	defer func() {
		for _, qp := range qps {
			qp.Close()
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		qp, err := admit(ctx, conn, pd, srv, agent)
		if err != nil {
			slog.Warn("client not admitted", "error", err)
		}
		if qp != nil {
			qps = append(qps, qp)
		}
		conn.Close()
	}
}

// admit gives a client what it asks for; a queue pair to the agent stays ours.
func admit(ctx context.Context, conn net.Conn, pd *verbs.PD, srv *lockoffload.Server, agent *lockoffload.Agent) (*verbs.QP, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	var hello [helloSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return nil, err
	}
	if hello[0] == wantLocks {
		s, err := srv.Admit(nil)
		if err != nil {
			return nil, err
		}
		local, err := s.Endpoint()
		if err != nil {
			return nil, err
		}
		remote, err := verbs.Exchange(ctx, conn, local)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return nil, s.Connect(remote)
	}
	qp, err := pd.CreateQP(agent.QPConfig())
	if err != nil {
		return nil, err
	}
	if err := agent.Attach(binary.BigEndian.Uint64(hello[1:]), qp); err != nil {
		return qp, err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return qp, err
	}
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return qp, err
	}
	return qp, qp.Connect(remote, verbs.ConnectConfig{})
}

// Client is a lockoffload client with its connection.
type Client struct {
	*lockoffload.Client
	pd    *verbs.PD
	at    string
	agent *lockoffload.Caller

	mu     sync.Mutex
	qp     *verbs.QP
	cq     *verbs.CQ
	closer []io.Closer
}

// Dial makes a client of the host at a TCP address.
func Dial(ctx context.Context, pd *verbs.PD, at string) (*Client, error) {
	c := &Client{pd: pd, at: at}
	qp, cq, in, err := c.join(ctx)
	if err != nil {
		return nil, err
	}
	c.qp, c.cq = qp, cq
	c.Client, err = lockoffload.NewClient(lockoffload.Config{PD: pd, QP: qp, CQ: cq, Invite: in})
	if err != nil {
		return nil, errors.Join(err, qp.Close(), cq.Close())
	}
	return c, nil
}

// Cut ends the connection under the client, as if its host had died.
func (c *Client) Cut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qp.ToError()
}

// Persist calls f until its connection lives to the end of it, each time with a
// new connection: f must be one to be repeated, wherever it broke off. On a bad
// wire that is daily bread: retries run out, and Soft-RoCE completes requests
// without their result, which lockoffload notices and ends the connection for.
func (c *Client) Persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !Gone(err) {
			return err
		}
		if err := c.Again(ctx); err != nil {
			return err
		}
	}
}

// Gone tells whether an error is of the connection or the session, and not of
// what was to be done.
func Gone(err error) bool {
	return errors.Is(err, lockoffload.ErrBroken) || errors.Is(err, lockoffload.ErrLost)
}

// Again gives the client a new connection, as somebody else than before. It
// tries until the context ends: the wire may be bad for it too, and the host full
// until the leases of those who have gone run out.
func (c *Client) Again(ctx context.Context) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := c.again(ctx)
		if err == nil || errors.Is(err, lockoffload.ErrClosed) || errors.Is(err, lockoffload.ErrConfig) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("come back: %w", errors.Join(ctx.Err(), err))
		}
	}
}

func (c *Client) again(ctx context.Context) error {
	qp, cq, in, err := c.join(ctx)
	if err != nil {
		return err
	}
	if err := c.Reconnect(ctx, qp, cq, in); err != nil {
		return errors.Join(err, qp.Close(), cq.Close())
	}
	c.mu.Lock()
	c.qp, qp = qp, c.qp
	c.cq, cq = cq, c.cq
	c.mu.Unlock()
	if err := errors.Join(qp.Close(), cq.Close()); err != nil {
		slog.Debug("old connection", "error", err)
	}
	return nil
}

// UseAgent has Do give chains to the host's agent.
func (c *Client) UseAgent(ctx context.Context, layout lockoffload.Layout) error {
	id := rand.Uint64()
	caller, err := lockoffload.NewCaller(ctx, lockoffload.CallerConfig{PD: c.pd, Layout: layout, Client: id,
		Connect: func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
			qp, cq, _, err := dial(ctx, c.pd, c.at, wantAgent, id)
			if err == nil {
				c.mu.Lock()
				c.closer = append(c.closer, cq, qp)
				c.mu.Unlock()
			}
			return qp, cq, err
		}})
	if err != nil {
		return err
	}
	c.agent = caller
	c.Client.UseAgent(caller)
	return nil
}

// Close ends the client and its connections.
func (c *Client) Close() error {
	errs := []error{c.Client.Close()}
	if c.agent != nil {
		errs = append(errs, c.agent.Close())
	}
	for i := range c.closer {
		errs = append(errs, c.closer[len(c.closer)-1-i].Close())
	}
	return errors.Join(append(errs, c.qp.Close(), c.cq.Close())...)
}

func (c *Client) join(ctx context.Context) (qp *verbs.QP, cq *verbs.CQ, in lockoffload.Invite, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	qp, cq, remote, err := dial(ctx, c.pd, c.at, wantLocks, 0)
	if err != nil {
		return nil, nil, in, err
	}
	if err := in.UnmarshalBinary(remote.Data); err != nil {
		return nil, nil, in, errors.Join(err, qp.Close(), cq.Close())
	}
	return qp, cq, in, nil
}

// dial makes a queue pair and connects it by TCP.
func dial(ctx context.Context, pd *verbs.PD, at string, want byte, id uint64) (qp *verbs.QP, cq *verbs.CQ, remote verbs.Endpoint, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, nil, remote, err
	}
	defer conn.Close()
	if _, err = conn.Write(binary.BigEndian.AppendUint64([]byte{want}, id)); err != nil {
		return nil, nil, remote, err
	}
	if cq, err = pd.Device().CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, nil, remote, err
	}
	if qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq}); err != nil {
		return nil, nil, remote, errors.Join(err, cq.Close())
	}
	local, err := qp.Endpoint()
	if err == nil {
		remote, err = verbs.Exchange(ctx, conn, local)
	}
	if err == nil {
		err = qp.Connect(remote, verbs.ConnectConfig{})
	}
	if err != nil {
		return nil, nil, remote, errors.Join(err, qp.Close(), cq.Close())
	}
	return qp, cq, remote, nil
}
