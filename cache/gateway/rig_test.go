package gateway

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// stuck is how long a test waits for what has to come, on a host that does much else meanwhile.
const stuck = 2 * time.Minute

// local is a store in this process, behind a lock.
type local struct {
	mu    sync.Mutex
	s     *store.Store
	begin time.Time
}

func newLocal(t testing.TB) *local {
	const page = 8 << 20
	a, err := arena.New(page)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, 8*page))
	require.NoError(t, err)
	s, err := store.New(store.Config{
		Epoch: 1, Arena: a, Depth: 8,
		AllocTable: func(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{} }, FreeTable: func([]byte) {},
	})
	require.NoError(t, err)
	return &local{s: s, begin: time.Now()}
}

func (l *local) Do(_ context.Context, q *kv.Request) (kv.Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.s.DoLocal(uint64(time.Since(l.begin)/time.Millisecond), q)
	a.Value = append(q.Into[:0], a.Value...)
	return a.Reply, nil
}

func (l *local) StatLines() [][2]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.s.Stats()
	return [][2]string{{"curr_items", u64(uint64(n.Items))}, {"total_items", u64(n.Stored)}, {"limit_maxbytes", u64(uint64(n.Arena.Total))}}
}

func (l *local) Ranges() []kv.Range {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Ranges()
}

func (l *local) Keys(id, limit int) (list []kv.Listed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from := -1; from != 0; {
		list, from = l.s.Keys(uint64(time.Since(l.begin)/time.Millisecond), id, max(from, 0), limit, list)
	}
	return list
}

func newServer(t testing.TB, cfg Config) (*Server, string) {
	if cfg.Store == nil {
		cfg.Store = newLocal(t)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, ErrClosed)
		require.NoError(t, s.Close(), "once more")
	})
	return s, l.Addr().String()
}

// peer is a client that sends bytes and looks at what comes back.
type peer struct {
	t  testing.TB
	nc net.Conn
}

func dial(t testing.TB, network, addr string) *peer {
	nc, err := net.Dial(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t, nc}
}

// ask sends commands and reads what they answer: mn says when that is all.
func (p *peer) ask(commands string) string {
	p.t.Helper()
	_, err := p.nc.Write([]byte(commands + "mn\r\n"))
	require.NoError(p.t, err)
	var got []byte
	b := make([]byte, 64<<10)
	require.NoError(p.t, p.nc.SetReadDeadline(time.Now().Add(stuck)))
	for !bytes.HasSuffix(got, []byte("MN\r\n")) {
		n, err := p.nc.Read(b)
		require.NoError(p.t, err, "%q answered %q", commands, got)
		got = append(got, b[:n]...)
	}
	return string(got[:len(got)-4])
}

// rest is what comes until the other side closes.
func (p *peer) rest(commands string) string {
	p.t.Helper()
	_, err := p.nc.Write([]byte(commands))
	require.NoError(p.t, err)
	require.NoError(p.t, p.nc.SetReadDeadline(time.Now().Add(stuck)))
	var got bytes.Buffer
	_, _ = got.ReadFrom(p.nc)
	return got.String()
}
