package gateway

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
)

var errQuit = errors.New("gateway: the client is done")

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

// knows reports whether a password is a user's, in a time that does not depend on where
// they differ.
func (c *conn) knows(user, password string) bool {
	want, ok := c.users[user]
	return subtle.ConstantTimeCompare([]byte(want), []byte(password)) == 1 && ok
}

// command is a command of the text protocol, and how many tokens it may have.
type command struct {
	least, most int
	do          func(c *conn, t []string) error
}

var commands map[string]command

func init() {
	store := func(op kv.Op, want uint32, tokens int) command {
		return command{tokens, tokens + 1, func(c *conn, t []string) error { return c.store(t, op, want) }}
	}
	count := func(want uint32) command {
		return command{3, 4, func(c *conn, t []string) error { return c.count(t, want) }}
	}
	commands = map[string]command{
		"set":            store(kv.OpSet, 0, 5),
		"add":            store(kv.OpAdd, 0, 5),
		"replace":        store(kv.OpReplace, 0, 5),
		"append":         store(kv.OpAppend, 0, 5),
		"prepend":        store(kv.OpPrepend, 0, 5),
		"cas":            store(kv.OpSet, kv.WantCompare, 6),
		"incr":           count(0),
		"decr":           count(kv.WantDecr),
		"delete":         {2, 4, (*conn).delete},
		"touch":          {3, 4, (*conn).touch},
		"flush_all":      {1, 3, (*conn).flush},
		"verbosity":      {2, 3, (*conn).verbosity},
		"version":        {1, maxTokens, func(c *conn, _ []string) error { return c.say("VERSION " + memcachedVersion) }},
		"quit":           {1, maxTokens, func(*conn, []string) error { return errQuit }},
		"shutdown":       {1, maxTokens, func(c *conn, _ []string) error { return c.say("ERROR: shutdown not enabled") }},
		"cache_memlimit": {2, 3, (*conn).memlimit},
		"stats":          {1, maxTokens, (*conn).tellStats},
		"mg":             {2, maxTokens, (*conn).metaGet},
		"ms":             {2, maxTokens, (*conn).metaSet},
		"md":             {2, maxTokens, (*conn).metaDelete},
		"ma":             {2, maxTokens, (*conn).metaCount},
		"me":             {1, maxTokens, (*conn).metaDebug},
		"mn":             {1, maxTokens, func(c *conn, _ []string) error { return c.say("MN") }},
	}
}

// retrieval is a command that returns values.
type retrieval struct{ cas, touch bool }

var reads = map[string]retrieval{
	"get": {}, "bget": {}, "gets": {cas: true}, "gat": {touch: true}, "gats": {cas: true, touch: true},
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
