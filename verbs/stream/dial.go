package stream

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream/internal/flow"
	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

// Config configures streams. The zero value is fine.
type Config struct {
	// Buffer is the size in bytes of the ring that the peer writes to, and of
	// the buffer for sending; 4 KiB to 64 MiB, 0 means 1 MiB.
	Buffer int
	// Messages is how many messages may be under way in each direction; 8 to
	// 256, 0 means 128. It bounds small writes as Buffer bounds large ones.
	Messages int
	// Dial is how to reach the peer; its ConnConfig is the stream's own.
	Dial rdmacm.DialConfig
	// Listen is how to listen.
	Listen rdmacm.ListenConfig
	// Pending is how many streams a listener makes ahead of Accept, each with its
	// buffers, whether their peers have finished connecting or not. Unauthenticated peers can take at
	// most Pending times twice Buffer of pinned memory. 0 means 16. Half of them may be
	// of peers of one address (an IPv6 /64) that have not finished connecting. Up to 1024
	// requests wait, 256 of each address; then the oldest request of the address that has
	// most is rejected.
	Pending int
	// HandshakeTimeout is how long a peer may take to finish connecting once it
	// has got one of those places; 0 means 10 s.
	HandshakeTimeout time.Duration
	// KeepAlive is how soon a stream notices that its peer's host is gone while nothing is
	// under way; reads and writes fail then. 0 means [verbs.DefaultKeepAlive], negative
	// never.
	KeepAlive time.Duration
}

func (c *Config) resolve() error {
	if c.Buffer == 0 {
		c.Buffer = 1 << 20
	}
	if c.Messages == 0 {
		c.Messages = 128
	}
	if c.Buffer < wire.MinRing || c.Buffer > wire.MaxRing || c.Messages < wire.MinMessages || c.Messages > wire.MaxMessages {
		return operr.New("make", "stream", verbs.ErrAttributes, "buffer of ", c.Buffer, " bytes, ", c.Messages, " messages")
	}
	if c.Pending == 0 {
		c.Pending = 16
	}
	c.KeepAlive = cmp.Or(c.KeepAlive, verbs.DefaultKeepAlive)
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.Pending < 0 || c.HandshakeTimeout < 0 {
		return operr.New("make", "stream", verbs.ErrAttributes, c.Pending, " pending, handshake of ", c.HandshakeTimeout)
	}
	return nil
}

// Dial connects to a [Listen] at "host:port". Errors are those of
// [rdmacm.CM.Dial], and [verbs.ErrMessage] if something else listens there.
func Dial(ctx context.Context, m *rdmacm.CM, address string, cfg Config) (*Conn, error) {
	if err := cfg.resolve(); err != nil {
		return nil, err
	}
	s := &Conn{cm: m}
	dial := cfg.Dial
	dial.ConnConfig = rdmacm.ConnConfig{MaxReads: -1, Setup: func(c *rdmacm.Setup) error { return s.parts.make(c, &cfg) }}
	conn, err := m.Dial(ctx, address, dial)
	if err != nil {
		return nil, errors.Join(err, s.parts.close())
	}
	hello, err := greeting(conn.PrivateData())
	if err == nil {
		err = s.start(conn, hello, &cfg)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(), s.parts.close())
	}
	return s, nil
}

// greeting is what the peer said of its ring.
func greeting(private []byte) (wire.Hello, error) {
	hello, err := wire.Decode(private)
	if err != nil {
		err = operr.New("decode", "stream greeting", verbs.ErrMessage, err)
	}
	return hello, err
}

// start makes a stream of a connection.
func (s *Conn) start(conn *rdmacm.Conn, hello wire.Hello, cfg *Config) (err error) {
	s.conn, s.peer = conn, verbs.Region{Addr: hello.Addr, Length: uint64(hello.Size), RKey: hello.RKey}
	s.local, s.remote = addr{conn.LocalAddr()}, addr{conn.RemoteAddr()}
	s.waits, s.stop = context.WithCancel(context.Background())
	s.reader.wake, s.writer.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	s.flow = flow.New(flow.Config{Ring: uint64(cfg.Buffer), Messages: uint64(cfg.Messages),
		PeerRing: uint64(hello.Size), PeerMessages: uint64(hello.Messages), Buffer: uint64(cfg.Buffer)})
	// Not before there is a peer.
	if s.parts.buffer, err = s.parts.pd.AllocMR(cfg.Buffer, verbs.MRConfig{}); err != nil {
		return err
	}
	if s.credit, err = s.parts.qp.NewBatch(1); err != nil {
		return err
	}
	if s.data, err = s.parts.qp.NewBatch(1); err != nil {
		return err
	}
	s.recvs, err = s.parts.qp.NewRecvBatch(len(s.wcs))
	return err
}

// addr is an address of network "rdma".
type addr struct{ netip.AddrPort }

func (addr) Network() string { return "rdma" }
