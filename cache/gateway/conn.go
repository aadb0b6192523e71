package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
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

var errQuit = errors.New("gateway: the client is done")

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

func (c *conn) serve() {
	if t, ok := c.nc.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Login)
		err := t.HandshakeContext(ctx)
		if cancel(); err != nil {
			return
		}
	}
	if b, err := c.peek(); err == nil && b == 0x80 {
		c.refuseBinary()
		return
	}
	for {
		line, err := c.readLine()
		if err == nil {
			err = c.command(line)
		}
		if err != nil {
			_ = c.w.Flush()
			return
		}
		c.trim()
	}
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

// refuseBinary writes in the binary protocol why it is not spoken: a response to the
// request's opcode and opaque with the status "unknown command".
func (c *conn) refuseBinary() {
	c.n.add(binaryRefused, 1)
	const why = "the binary protocol is not supported: use memcached's text or meta protocol"
	var q, a [24]byte
	if _, err := io.ReadFull(c.r, q[:]); err != nil {
		return
	}
	a[0], a[1] = 0x81, q[1]
	binary.BigEndian.PutUint16(a[6:], 0x81)
	binary.BigEndian.PutUint32(a[8:], uint32(len(why)))
	copy(a[12:16], q[12:16])
	_, _ = c.w.Write(a[:])
	_, _ = c.w.WriteString(why)
	_ = c.w.Flush()
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

const badFormat = "CLIENT_ERROR bad command line format"

// split appends the tokens of a line to t, which is empty.
func split(t []string, line string, most int) []string {
	for line != "" && (most < 0 || len(t) < most) {
		tok, rest, _ := strings.Cut(line, " ")
		if tok != "" {
			t = append(t, tok)
		}
		line = rest
	}
	return t
}

func (c *conn) command(line string) error {
	c.noreply = false
	if !c.trusted {
		return c.authenticate(line)
	}
	c.tokens = split(c.tokens[:0], line, -1)
	t := c.tokens
	if len(t) == 0 || len(t[0]) < 2 {
		return c.say("ERROR")
	}
	if do, ok := reads[t[0]]; ok && len(t) > 1 {
		return c.get(t, do)
	}
	t = t[:min(len(t), maxTokens)]
	if do, ok := commands[t[0]]; ok && len(t) >= do.least && len(t) <= do.most {
		return do.do(c, t)
	}
	if strings.HasPrefix(t[len(t)-1], "HTTP/") {
		return errQuit
	}
	return c.say("ERROR")
}

// authenticate carries out the only command without a password: a set of any key, with a
// name and a password as the value.
func (c *conn) authenticate(line string) error {
	t := split(nil, line, maxTokens)
	if len(t) < 5 || t[0] != "set" {
		return c.complain("CLIENT_ERROR unauthenticated")
	}
	n, ok := unsigned(t[4])
	if !ok {
		return c.complain("CLIENT_ERROR unauthenticated")
	}
	if n > maxLine {
		return errQuit
	}
	whole, err := c.readData(int(n))
	if err != nil {
		return err
	}
	if !whole {
		return c.complain("CLIENT_ERROR bad command line termination")
	}
	t = split(nil, string(c.data), maxTokens)
	if len(t) < 2 {
		return c.complain("CLIENT_ERROR bad authentication token format")
	}
	c.n.add(passwords, 1)
	if !c.knows(t[0], t[1]) {
		c.n.add(passwordErrors, 1)
		return c.complain("CLIENT_ERROR authentication failure")
	}
	c.trusted = true
	_ = c.nc.SetDeadline(time.Time{})
	return c.complain("STORED")
}

// request returns the connection's request, of a key of a line. It is good until the next one.
func (c *conn) request(op kv.Op, key string) *kv.Request {
	c.key = append(c.key[:0], key...)
	c.q = kv.Request{Op: op, Key: c.key}
	return &c.q
}

// do asks the store, and counts that. The reply's value is good until the next request.
func (c *conn) do(q *kv.Request) kv.Reply {
	a := c.ask(q)
	c.n.count(q, &a)
	if d := &c.s.details; d.on.Load() {
		d.count(q, &a)
	}
	return a
}

// ask asks the store. After an error the reply is empty, which failure makes a server error.
func (c *conn) ask(q *kv.Request) kv.Reply {
	if c.long && c.value == nil && q.Op == kv.OpGet {
		c.value = borrow()
	}
	q.Into = c.value[:0]
	a, err := c.s.cfg.Store.Do(c.s.ctx, q)
	if err != nil {
		return kv.Reply{}
	}
	c.long = len(a.Value) > keep
	if cap(a.Value) > cap(c.value) {
		c.value = a.Value
	}
	return a
}

// drop deletes a record: what was there before must not pass for what was not stored.
func (c *conn) drop(key []byte) {
	c.q = kv.Request{Op: kv.OpDelete, Key: key}
	c.ask(&c.q)
}

// failure returns the text of outcomes that all commands have in common.
func failure(s kv.Status) string {
	switch s {
	case kv.NoMemory:
		return "SERVER_ERROR out of memory storing object"
	case kv.TooLarge:
		return "SERVER_ERROR object too large for cache"
	}
	return "SERVER_ERROR the store did not answer"
}

const thirtyDays = 60 * 60 * 24 * 30

// until returns memcached's expiry as the store takes it: ms from now. More than thirty
// days is a date.
func until(t int32) int64 {
	switch {
	case t < 0:
		return -1
	case t > thirtyDays:
		if left := int64(t) - time.Now().Unix(); left > 0 {
			return left * 1000
		}
		return -1
	}
	return int64(t) * 1000
}

// tooLarge reports whether memcached would find an item too large: it counts a header of 56
// bytes, the key and a zero, the flags if there are any, the value and the end of its line.
func (c *conn) tooLarge(key string, flags uint32, n int) bool {
	size := 56 + len(key) + 1 + n + 2
	if flags != 0 {
		size += 4
	}
	return size > c.s.cfg.MaxItem
}

func u64(n uint64) string { return strconv.FormatUint(n, 10) }
