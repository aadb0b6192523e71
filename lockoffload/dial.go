package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// DialConfig describes a client that finds its target by an address. Key must be set.
type DialConfig struct {
	Key     []byte // the target's
	Retry   Retry
	GID     verbs.GIDEntry      // local address; the zero value means that of the TCP connection
	Connect verbs.ConnectConfig // of the queue pairs to the target
	// NoAgent has [Client.Do] carry out all chains from here, also where the
	// target has an agent.
	NoAgent bool
	// Dialer connects, over TLS for instance; nil means TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	Logger *slog.Logger // as in [Config]; nil: silent
}

// Dial makes a client of the target that listens at an address, see [Listen]. Queue
// pairs and the target's agent are the client's, and are closed with it. A target that has
// only just been started is waited for, see ListenConfig.Grace.
//
// When the connection has failed, [Client.Redial] goes on with a new one, and
// [Client.Retry] repeats what it broke off. The connection to the agent is made again by
// itself, as soon as there is an agent; until then the client goes on without.
func Dial(ctx context.Context, pd *verbs.PD, address string, cfg DialConfig) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, opErrorf("dial "+address, err)
	}
	d, err := newDialer(pd, address, cfg)
	if err != nil {
		return nil, err
	}
	helper := d.caller
	if cfg.NoAgent {
		helper = nil
	}
	c, err := newDialed(ctx, pd, d.join, helper, cfg.Retry, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("lockoffload: dial %s: %w", address, err)
	}
	return c, nil
}

func newDialer(pd *verbs.PD, address string, cfg DialConfig) (*dialer, error) {
	if pd == nil || len(cfg.Key) < minKey {
		return nil, fmt.Errorf("lockoffload: dial %s: a PD, and a key of %d bytes at least, are needed: %w", address, minKey, ErrConfig)
	}
	cfg.Logger = cmp.Or(cfg.Logger, discard)
	return &dialer{pd: pd, address: address, cfg: cfg}, nil
}

// joined is a place at a target, with a connected queue pair.
type joined struct {
	qp    *verbs.QP
	cq    *verbs.CQ
	conn  net.Conn     // the target keeps the place while it is open, or nil
	leave func() error // gives the place up at once, or nil
	info  SessionInfo
}

// gidFor returns the configured GID, or else that of a TCP connection's local address.
func gidFor(pd *verbs.PD, gid verbs.GIDEntry, conn net.Conn) (verbs.GIDEntry, error) {
	if gid != (verbs.GIDEntry{}) {
		return gid, nil
	}
	return pd.Device().GIDFor(conn.LocalAddr())
}

func newJoined(pd *verbs.PD, gid verbs.GIDEntry) (j joined, err error) {
	if j.cq, err = pd.Device().CreateCQ(verbs.CQConfig{}); err != nil {
		return joined{}, err
	}
	if j.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: j.cq, GID: gid}); err != nil {
		return joined{}, errors.Join(err, j.cq.Close())
	}
	return j, nil
}

func (j *joined) close() error {
	var errs []error
	if j.qp != nil {
		errs = append(errs, j.qp.Close(), j.cq.Close())
	}
	if j.conn != nil {
		errs = append(errs, j.conn.Close())
	}
	if j.leave != nil {
		errs = append(errs, j.leave())
	}
	return errors.Join(errs...)
}

// join gets a place among the sessions. The caller must call stands once the client is
// made.
func (d *dialer) join(ctx context.Context) (joined, error) {
	j, remote, err := d.meet(ctx, wire.Session, 0)
	if err != nil {
		return j, err
	}
	if err := j.info.UnmarshalBinary(remote.Data); err != nil {
		return joined{}, errors.Join(err, j.close())
	}
	return j, nil
}

// stands sends the target the message that the client has taken its place.
func (j *joined) stands() error {
	if j.conn == nil {
		return nil
	}
	_, err := j.conn.Write([]byte{wire.Connected})
	err = errors.Join(err, j.conn.Close())
	j.conn = nil
	return err
}

// link has the connections that a client that dialed has made for itself.
type link struct {
	join   func(context.Context) (joined, error)
	helper func(context.Context, *target) (*Caller, error) // dials the agent; nil: it is not used

	turn  chan struct{} // full while a call dials, or closes
	now   joined
	agent *Caller
	had   atomic.Bool // the target has had an agent
	asked time.Time   // when it was last asked for one again
}

func newDialed(ctx context.Context, pd *verbs.PD, join func(context.Context) (joined, error), helper func(context.Context, *target) (*Caller, error), retry Retry, log *slog.Logger) (*Client, error) {
	j, err := join(ctx)
	if err != nil {
		return nil, err
	}
	c, err := NewClient(Config{PD: pd, QP: j.qp, CQ: j.cq, Session: j.info, Retry: retry, Logger: log})
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	c.link = &link{join: join, helper: helper, turn: make(chan struct{}, 1), now: j}
	if err = c.link.now.stands(); err == nil {
		err = c.findAgent(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// findAgent connects to the target's agent, if there is one and the client is not connected to
// it already. link.turn must be held, but for a client that is being made.
func (c *Client) findAgent(ctx context.Context) error {
	l := c.link
	if l.helper == nil {
		return nil
	}
	if l.agent != nil {
		if !l.agent.gone() {
			return nil
		}
		c.UseAgent(nil)
		if err := l.agent.Close(); err != nil { // such as TLS's, of a connection that was reset
			c.cfg.Logger.Error("lockoffload: old connection to the agent", "error", err)
		}
		l.agent = nil
	}
	agent, err := l.helper(ctx, &c.target)
	if errors.Is(err, ErrRefused) { // it has none, or no room there: Do goes on without
		c.cfg.Logger.Info("lockoffload: no agent", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	l.agent = agent
	l.had.Store(true)
	c.UseAgent(agent)
	return nil
}

// regainAgent dials the target's agent again after the client has lost it, in the
// background and once a second at most: operations go on without it meanwhile. It reports
// whether the target has had an agent.
func (c *Client) regainAgent() bool {
	l := c.link
	if l == nil || !l.had.Load() {
		return false
	}
	select {
	case l.turn <- struct{}{}:
	default:
		return true // another call dials, or closes
	}
	if c.shut() != nil || time.Since(l.asked) < time.Second {
		<-l.turn
		return true
	}
	l.asked = time.Now()
	go func() {
		defer func() { <-l.turn }()
		if err := c.findAgent(c.over); err != nil {
			c.cfg.Logger.Info("lockoffload: no agent yet", "error", err)
		}
	}()
	return true
}

// QP returns the queue pair of the present session.
func (c *Client) QP() *verbs.QP { return c.session().line.qp }

// IsConnectionError reports whether err came from the connection or the session rather than from the
// operation, so that [Client.Redial] helps. It does not after [ErrRestarted].
func IsConnectionError(err error) bool {
	return (errors.Is(err, ErrBroken) || errors.Is(err, ErrLost)) && !errors.Is(err, ErrRestarted)
}

// Redial begins a new session, with a new identity, after the last one has ended: locks
// taken before are lost. While the session lives it only looks for the agent. It tries
// until the context ends: the wire may be bad, and the target full until the leases of
// departed clients run out. [ErrRestarted] ends it: at its address there is another target
// now. It is for clients of [Dial] and [Listener.Local].
func (c *Client) Redial(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return opErrorf("redial", err)
	}
	if c.link == nil {
		return fmt.Errorf("lockoffload: redial a client that did not dial: %w", ErrConfig)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.over, cancel)()
	select {
	case c.link.turn <- struct{}{}:
	case <-ctx.Done():
		return opErrorf("redial", errors.Join(c.shut(), ctx.Err()))
	}
	defer func() { <-c.link.turn }()
	for pauses := backoff.New(10*time.Millisecond, time.Second); ; {
		err := c.shut()
		if err == nil {
			err = c.redial(ctx)
		}
		if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrConfig) || errors.Is(err, ErrRestarted) || errors.Is(err, ErrDenied) {
			return err
		}
		if over := pauses.Wait(ctx); over != nil {
			return opErrorf("redial", errors.Join(c.shut(), over, err))
		}
	}
}

// shut returns ErrClosed if the client is closed, and so connects no more.
func (c *Client) shut() error {
	if c.over.Err() != nil {
		return ErrClosed
	}
	return nil
}

func (c *Client) redial(ctx context.Context) error {
	select {
	case <-c.Lost():
	default:
		return c.findAgent(ctx)
	}
	j, err := c.link.join(ctx)
	if err != nil {
		return err
	}
	if err := c.Reconnect(ctx, j.qp, j.cq, j.info); err != nil {
		return errors.Join(err, j.close())
	}
	old := c.link.now
	c.link.now = j
	if err := old.close(); err != nil {
		c.cfg.Logger.Error("lockoffload: old connection", "error", err)
	}
	if err := c.link.now.stands(); err != nil {
		return err
	}
	return c.findAgent(ctx)
}

// Retry calls f, and calls it again with a new connection as long as f returns an error
// for which [IsConnectionError] is true: f must be repeatable, wherever it broke off. Other errors of
// f are returned, and so is [ErrRestarted].
func (c *Client) Retry(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return opErrorf("retry", err)
	}
	for pauses := backoff.New(time.Millisecond, 100*time.Millisecond); ; {
		before := c.session()
		err := f()
		if err == nil || !IsConnectionError(err) {
			return err
		}
		if rerr := c.Redial(ctx); rerr != nil {
			return errors.Join(rerr, err)
		}
		if c.session() != before {
			pauses.Reset()
			continue
		}
		// The session lives. The agent's connection failed, or f still uses a lock of an
		// earlier session.
		if over := pauses.Wait(ctx); over != nil {
			return errors.Join(over, err)
		}
	}
}

// close frees the connections that the client has made for itself.
func (l *link) close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	var errs []error
	if l.agent != nil {
		errs = append(errs, l.agent.Close())
		l.agent = nil
	}
	errs = append(errs, l.now.close())
	l.now = joined{}
	return errors.Join(errs...)
}
