package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// expect reads a reply.
func (p *peer) expect(want string) {
	p.t.Helper()
	require.NoError(p.t, p.nc.SetReadDeadline(time.Now().Add(stuck)))
	got := make([]byte, len(want))
	n, err := io.ReadFull(p.nc, got)
	require.NoError(p.t, err, "%q", got[:n])
	require.Equal(p.t, want, string(got))
}

// The reply to a command comes before the next one is there, whatever of that has arrived.
func TestRepliesBeforeTheNextCommand(t *testing.T) {
	const item = 1 << 20
	ours, theirs := certificate(t, "cache")
	_, plain := newServer(t, Config{MaxItem: item})
	_, secret := newServer(t, Config{MaxItem: item, TLS: ours, Users: map[string]string{"ann": "secret"}})
	connect := map[string]func(t *testing.T) *peer{
		"plain": func(t *testing.T) *peer { return dial(t, "tcp", plain) },
		"TLS": func(t *testing.T) *peer {
			nc, err := tls.Dial("tcp", secret, theirs)
			require.NoError(t, err)
			t.Cleanup(func() { _ = nc.Close() })
			p := &peer{t, nc}
			half(p, "get a\r\n", "CLIENT_ERROR unauthenticated\r\n", "set x 0 0 10\r\nann", " secret\r\n", "STORED\r\n")
			return p
		},
	}
	long := strings.Repeat("x", 500_000) // more than a reader's memory
	for name, connect := range connect {
		t.Run(name, func(t *testing.T) {
			p := connect(t)
			require.Equal(t, "STORED\r\n", p.ask("set a 0 0 1\r\nx\r\n"))
			for _, of := range [][2]string{{"get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"}, {"mg a v\r\n", "VA 1\r\nx\r\n"}, {"set a 0 0 1\r\nx\r\n", "STORED\r\n"}} {
				for _, next := range [][3]string{
					{"get b", "\r\n", "END\r\n"},
					{"mn\r", "\n", "MN\r\n"},
					{"get " + strings.Repeat("b ", 20_000), "\r\n", "END\r\n"},
					{"set c 0 0 500000\r\n", long + "\r\n", "STORED\r\n"},
					{"set c 0 0 500000\r\n" + long, "\r\n", "STORED\r\n"},
					{"ms c 500000\r\n" + long[:100], long[100:] + "\r\n", "HD\r\n"},
					{"set c 0 0 2000000\r\n" + long, strings.Repeat(long, 3) + "\r\n", ""}, // refused already
					{"ms c 2000000\r\n" + long, strings.Repeat(long, 3) + "\r\n", ""},
				} {
					said := of[1]
					if next[2] == "" {
						said += "SERVER_ERROR object too large for cache\r\n"
					}
					half(p, of[0], said, next[0], next[1], next[2])
				}
			}
		})
	}
}

// half sends a command with the beginning of the next one, and the rest of that when the reply has come.
func half(p *peer, command, reply, begins, ends, then string) {
	p.t.Helper()
	_, err := p.nc.Write([]byte(command + begins))
	require.NoError(p.t, err)
	p.expect(reply)
	_, err = p.nc.Write([]byte(ends))
	require.NoError(p.t, err)
	p.expect(then)
}

// repeated is a client that sends a command again and again.
type repeated struct {
	net.Conn
	command string
	left    int // of these
	at      int // in it
}

func (c *repeated) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.command[c.at:])
	if c.at += n; c.at == len(c.command) {
		c.at = 0
		c.left--
	}
	return n, nil
}

func (c *repeated) Write(b []byte) (int, error) { return len(b), nil }

// Long values use memory that no connection keeps.
func TestLongValuesAllocateLittle(t *testing.T) {
	const size, commands = 100_000, 400
	// Other processors may have what is spare. With the race detector some of it gets lost.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, err := New(Config{Store: newLocal(t)})
	require.NoError(t, err)
	set := fmt.Sprintf("set a 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size))
	for _, command := range []string{set, "get a\r\n"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := newConn(s, &repeated{command: command, left: commands}, nil)
		c.serve()
		runtime.ReadMemStats(&after)
		require.Less(t, int(after.TotalAlloc-before.TotalAlloc), commands*size*3/4)
		require.LessOrEqual(t, max(cap(c.data), cap(c.value)), keep)
	}
}

// A command uses the memory that its connection has: one line is all that is new.
func TestCommandsAllocateLittle(t *testing.T) {
	s, err := New(Config{Store: newLocal(t)})
	require.NoError(t, err)
	v := strings.Repeat("v", 64)
	newConn(s, &repeated{command: "set a 0 0 64\r\n" + v + "\r\n", left: 1}, nil).serve()
	const commands = 1000
	for _, command := range []string{"get a\r\n", "gets a b\r\n", "set a 0 0 64\r\n" + v + "\r\n", "mg a v k f t\r\n", "ms a 64 T100\r\n" + v + "\r\n", "delete b\r\n", "touch a 0\r\n"} {
		n := testing.AllocsPerRun(1, func() { newConn(s, &repeated{command: command, left: commands}, nil).serve() })
		require.LessOrEqual(t, n/commands, 1.2, command)
	}
}
