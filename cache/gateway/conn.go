package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
)

const (
	maxLine    = 2048    // of any command but get and gets
	maxGetLine = 1 << 20 // of those
	maxTokens  = 23      // of a command that is not a get

	keep = 64 << 10 // bytes of a line and of a value that a connection has memory for while it is quiet
	room = 1 << 20  // bytes of a value that there is memory for before they come
)

// conn is one connection. Its commands are carried out one after the other.
type conn struct {
	s       *Server
	n       *tally
	nc      net.Conn
	r       *bufio.Reader
	w       *bufio.Writer
	users   map[string]string
	begun   time.Time
	trusted bool // no password needed, or given
	noreply bool

	// Memory that commands use one after the other.
	line   []byte
	tokens []string
	key    []byte
	data   []byte // of a request
	value  []byte // of a reply
	long   bool   // the last value was long
	q      kv.Request
	flags  flags
}

func newConn(s *Server, nc net.Conn, users map[string]string) *conn {
	c := &conn{s: s, n: new(tally), nc: nc, users: users, begun: time.Now(), w: bufio.NewWriterSize(nc, 16<<10), trusted: len(users) == 0}
	c.r = bufio.NewReaderSize(unread{c}, 16<<10)
	return c
}

// unread is what a connection's reader reads from.
type unread struct{ c *conn }

// Read writes the replies that are ready, since it may block, and then reads.
func (u unread) Read(b []byte) (int, error) {
	if err := u.c.w.Flush(); err != nil {
		return 0, err
	}
	return u.c.nc.Read(b)
}

// trim gives up memory that a long command has left.
func (c *conn) trim() {
	if cap(c.line) > keep {
		c.line = nil
	}
	if cap(c.tokens) > keep/16 {
		c.tokens = nil
	}
	if cap(c.data) > keep {
		recycle(c.data)
		c.data = nil
	}
	if cap(c.value) > keep {
		recycle(c.value)
		c.value = nil
	}
}

// spare has memory for long values. Connections share it, and none keeps any.
var spare sync.Pool

// borrow returns spare memory, or nil if there is none.
func borrow() []byte {
	if b, ok := spare.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

// recycle makes memory spare that its connection uses no more.
func recycle(b []byte) {
	if cap(b) <= 2*room {
		spare.Put(&b)
	}
}

// alive sets the deadline for what comes next. A client that has not given its password has Login
// in all, to give it and to take the replies.
func (c *conn) alive() {
	switch {
	case !c.trusted:
		_ = c.nc.SetDeadline(c.begun.Add(c.s.cfg.Login))
	case c.s.cfg.Idle > 0:
		_ = c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.Idle))
	}
}

func (c *conn) peek() (byte, error) {
	c.alive()
	b, err := c.r.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// readLine reads up to the end of a line, which it leaves out, and what is behind a zero
// byte. A line that is too long ends the connection.
func (c *conn) readLine() (string, error) {
	c.alive()
	c.line = c.line[:0]
	for {
		part, err := c.r.ReadSlice('\n')
		c.line = append(c.line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		get := c.trusted && (bytes.HasPrefix(c.line, []byte("get ")) || bytes.HasPrefix(c.line, []byte("gets ")))
		if !get && len(c.line) > maxLine || len(c.line) > maxGetLine {
			return "", errQuit
		}
	}
	line := c.line[:len(c.line)-1]
	if n := len(line); n > 1 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if i := bytes.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	return string(line), nil
}

// readData reads a data block and the end of its line.
func (c *conn) readData(n int) (ok bool, err error) {
	c.alive()
	if n > keep && cap(c.data) <= keep {
		c.data = borrow()
	}
	c.data = c.data[:0]
	for at := 0; at < n+2; at = len(c.data) {
		more := min(n+2-at, room)
		c.data = slices.Grow(c.data, more)[:at+more]
		if _, err := io.ReadFull(c.r, c.data[at:]); err != nil {
			return false, err
		}
	}
	ok = string(c.data[n:]) == "\r\n"
	c.data = c.data[:n]
	return ok, nil
}

func (c *conn) swallow(n int) error {
	c.alive()
	_, err := io.CopyN(io.Discard, c.r, int64(n))
	return err
}

// say writes a reply, except after noreply; complain writes one in any case.
func (c *conn) say(text string) error {
	if c.noreply {
		return nil
	}
	return c.complain(text)
}

func (c *conn) complain(text string) error {
	_, _ = c.w.WriteString(text)
	return c.endLine()
}

// write writes a reply that was built in the writer's own memory.
func (c *conn) write(reply []byte) error {
	_, _ = c.w.Write(reply)
	return c.endLine()
}

func (c *conn) endLine() error {
	_, err := c.w.WriteString("\r\n")
	return err
}
