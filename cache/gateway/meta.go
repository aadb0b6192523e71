package gateway

import (
	"encoding/base64"
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

const (
	maxOpaque = 32
	maxFlags  = 19 // tokens of a meta command
)

// flags are those of a meta command.
type flags struct {
	key    []byte
	tokens []string
	binary bool
	value  bool
	quiet  bool
	mode   byte
	cas    bool
	q      Request
}

// parse reads the tokens behind a key. Of several mistakes the last one is told, but a
// flag that is unknown or said twice ends it.
func (f *flags) parse(key string, tokens []string) (mistake string) {
	f.key, f.tokens, f.q.Delta = []byte(key), tokens, 1
	var seen [127]bool
	text, bad := badFormat, false
	wrong := func(s string) { bad, text = true, s }
	for _, t := range tokens {
		o, rest := t[0], t[1:]
		if o >= 127 || seen[o] {
			return "CLIENT_ERROR duplicate flag"
		}
		seen[o] = true
		switch o {
		case 'b':
			f.binary = true
			f.q.Want |= wire.WantBinary
			k, ok := decodeKey(key)
			if !ok {
				wrong("CLIENT_ERROR error decoding key")
			}
			f.key = k
		case 'N', 'T', 'R':
			n, ok := signed(rest)
			if !ok {
				wrong("CLIENT_ERROR bad token in command line format")
				continue
			}
			switch at := until(n); o {
			case 'N':
				f.q.Vivify = at
				f.q.Want |= wire.WantVivify
			case 'T':
				f.q.Expiry = at
				f.q.Want |= wire.WantTouch
				f.q.Vivify = at // of one that comes after N
			case 'R':
				f.q.Recache = at
				f.q.Want |= wire.WantRecache
			}
		case 'F':
			n, ok := unsigned(rest)
			bad = bad || !ok
			f.q.Flags = uint32(n)
		case 'C':
			n, ok := unsigned(rest)
			if !ok {
				wrong("CLIENT_ERROR bad token in command line format")
				continue
			}
			f.q.CAS, f.cas = n, true
			f.q.Want |= wire.WantCompare
		case 'M':
			if len(t) != 2 {
				wrong("CLIENT_ERROR incorrect length for M token")
				continue
			}
			f.mode = t[1]
		case 'J':
			n, ok := unsigned(rest)
			if !ok {
				wrong("CLIENT_ERROR invalid numeric initial value")
			}
			f.q.Initial = n
		case 'D':
			n, ok := unsigned(rest)
			if !ok {
				wrong("CLIENT_ERROR invalid numeric delta value")
			}
			f.q.Delta = n
		case 'I':
			f.q.Want |= wire.WantStale
		case 'v':
			f.value = true
		case 'u':
			f.q.Want |= wire.WantNoBump
		case 'q':
			f.quiet = true
		case 'O', 'P', 'L', 'k', 's', 't', 'c', 'f', 'l', 'h':
		default:
			return "CLIENT_ERROR invalid flag"
		}
	}
	f.q.Key = f.key
	if bad {
		return text
	}
	return ""
}

// decodeKey is as lenient as memcached: characters that are none of base64's are passed
// over, padding counts as zero bits wherever it stands, and ends the key.
func decodeKey(s string) ([]byte, bool) {
	var key []byte
	var word uint32
	n, padding, usable := 0, 0, 0
	for i := range len(s) {
		if _, ok := sextet(s[i]); ok {
			usable++
		}
	}
	if usable == 0 || usable%4 != 0 {
		return nil, false
	}
	for i := range len(s) {
		v, ok := sextet(s[i])
		if !ok {
			continue
		}
		if s[i] == '=' {
			padding++
		}
		word = word<<6 | v
		if n++; n%4 > 0 {
			continue
		}
		key = append(key, byte(word>>16), byte(word>>8), byte(word))
		if padding > 2 {
			return nil, false
		}
		if padding > 0 {
			key = key[:len(key)-padding]
			break
		}
	}
	return key, len(key) > 0
}

func sextet(c byte) (uint32, bool) {
	switch {
	case c >= 'A' && c <= 'Z':
		return uint32(c - 'A'), true
	case c >= 'a' && c <= 'z':
		return uint32(c-'a') + 26, true
	case c >= '0' && c <= '9':
		return uint32(c-'0') + 52, true
	case c == '+':
		return 62, true
	case c == '/':
		return 63, true
	}
	return 0, c == '='
}

func (f *flags) opaqueTooLong() bool {
	for _, t := range f.tokens {
		if t[0] == 'O' && len(t) > maxOpaque {
			return true
		}
	}
	return false
}

const opaqueTooLong = "CLIENT_ERROR opaque token too long"

func putKey(out []byte, key []byte, binary bool) []byte {
	out = append(out, " k"...)
	if binary {
		return append(base64.StdEncoding.AppendEncode(out, key), " b"...)
	}
	return append(out, key...)
}

// tail appends the return flags that a command has, in the order of the request.
func (f *flags) tail(out []byte, have string, a *Reply) []byte {
	for _, t := range f.tokens {
		o := t[0]
		known := false
		for i := range len(have) {
			known = known || have[i] == o
		}
		if !known {
			continue
		}
		switch o {
		case 'O':
			out = append(append(out, ' '), t...)
		case 'k':
			out = putKey(out, f.key, f.binary || a.Bits&wire.ReplyBinary != 0)
		case 's':
			out = strconv.AppendInt(append(out, " s"...), int64(len(a.Value)), 10)
		case 'c':
			out = strconv.AppendUint(append(out, " c"...), a.CAS, 10)
		case 'f':
			out = strconv.AppendUint(append(out, " f"...), uint64(a.Flags), 10)
		case 'l':
			out = strconv.AppendUint(append(out, " l"...), a.Idle/1000, 10)
		case 'h':
			out = append(out, " h0"...)
			if a.Bits&wire.ReplyFetched != 0 {
				out[len(out)-1] = '1'
			}
		case 't':
			out = append(out, " t"...)
			if a.Expiry == 0 {
				out = append(out, "-1"...)
			} else {
				left := uint64(0)
				if a.Expiry > a.Clock {
					left = (a.Expiry - a.Clock + 999) / 1000
				}
				out = strconv.AppendUint(out, left, 10)
			}
		}
	}
	return out
}

// begin checks what all meta commands check; false: it has answered.
func (c *conn) begin(t []string, f *flags, first int, long, mistake string) (bool, error) {
	c.s.stats.meta.Add(1)
	switch {
	case len(t[1]) > wire.MaxKey:
		return false, c.complain(badFormat)
	case len(t) > maxFlags:
		return false, c.complain(long)
	}
	if m := f.parse(t[1], t[first:]); m != "" {
		if mistake != "" {
			m = mistake
		}
		return false, c.complain(m)
	}
	return true, nil
}

func (c *conn) metaGet(t []string) error {
	var f flags
	if ok, err := c.begin(t, &f, 2, "CLIENT_ERROR options flags are too long", ""); !ok {
		return err
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = wire.OpGet
	f.q.Want &^= wire.WantCompare | wire.WantStale
	f.q.Want |= wire.WantWin
	c.s.stats.get.Add(1)
	a := c.do(&f.q)
	switch a.Status {
	case wire.OK:
	case wire.NotFound:
		c.s.stats.misses.Add(1)
		if f.quiet {
			return nil
		}
		return c.complain(string(f.tail([]byte("EN"), "Ok", &a)))
	default:
		return c.complain(failure(a.Status))
	}
	c.s.stats.hits.Add(1)
	out := []byte("HD")
	if f.value {
		out = strconv.AppendInt([]byte("VA "), int64(len(a.Value)), 10)
	}
	out = f.tail(out, "stcflhOk", &a)
	for _, b := range []struct {
		bit  uint16
		text string
	}{{wire.ReplySent, " Z"}, {wire.ReplyStale, " X"}, {wire.ReplyWon, " W"}} {
		if a.Bits&b.bit != 0 {
			out = append(out, b.text...)
		}
	}
	if f.value {
		out = append(append(out, "\r\n"...), a.Value...)
	}
	return c.complain(string(out))
}

var modes = map[byte]wire.Op{
	0: wire.OpSet, 'S': wire.OpSet, 'E': wire.OpAdd, 'A': wire.OpAppend, 'P': wire.OpPrepend, 'R': wire.OpReplace,
}

func (c *conn) metaSet(t []string) error {
	c.s.stats.meta.Add(1)
	switch {
	case len(t[1]) > wire.MaxKey || len(t) == 2:
		return c.complain(badFormat)
	case len(t) > maxFlags:
		return c.complain("CLIENT_ERROR options flags too long")
	}
	n, ok := signed(t[2])
	if !ok || n < 0 || n > 1<<31-3 {
		return c.complain(badFormat)
	}
	var f flags
	mistake := f.parse(t[1], t[3:])
	op, known := modes[f.mode]
	switch {
	case mistake != "":
	case !known:
		mistake = "CLIENT_ERROR invalid mode for ms M token"
	case f.opaqueTooLong():
		mistake = opaqueTooLong
	case c.tooLarge(string(f.key), f.q.Flags, int(n)):
		mistake = failure(wire.TooLarge)
		c.do(&Request{Op: wire.OpDelete, Key: f.key})
	}
	if mistake != "" {
		if err := c.complain(mistake); err != nil {
			return err
		}
		return c.swallow(int(n) + 2)
	}
	whole, err := c.readData(int(n))
	if err != nil {
		return err
	}
	if !whole {
		return c.complain("CLIENT_ERROR bad data chunk")
	}
	f.q.Op, f.q.Value = op, c.data
	if op == wire.OpReplace && f.cas { // as with the cas command
		f.q.Op = wire.OpSet
	}
	c.s.stats.set.Add(1)
	a := c.do(&f.q)
	var code string
	switch a.Status {
	case wire.OK:
		if f.quiet {
			return nil
		}
		code = "HD"
	case wire.Exists:
		code = "EX"
	case wire.NotFound:
		code = "NF"
	case wire.NotStored, wire.TooLarge:
		code = "NS"
	default:
		return c.complain(failure(a.Status))
	}
	a.Bits = 0 // the key is shown as it came
	return c.complain(string(f.tail([]byte(code), "Okc", &a)))
}

const badFlag = "CLIENT_ERROR invalid or duplicate flag"

func (c *conn) metaDelete(t []string) error {
	var f flags
	if ok, err := c.begin(t, &f, 2, "CLIENT_ERROR options flags too long", badFlag); !ok {
		return err
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = wire.OpDelete
	a := c.do(&f.q)
	a.Bits = 0
	switch a.Status {
	case wire.OK:
		if f.quiet {
			return nil
		}
		return c.complain(string(f.tail([]byte("HD"), "Ok", &a)))
	case wire.Exists:
		return c.complain(string(f.tail([]byte("EX"), "Ok", &a)))
	case wire.NotFound:
		return c.complain(string(f.tail([]byte("NF"), "Ok", &a)))
	}
	return c.complain(failure(a.Status))
}

func (c *conn) metaCount(t []string) error {
	var f flags
	if ok, err := c.begin(t, &f, 2, "CLIENT_ERROR options flags too long", badFlag); !ok {
		return err
	}
	switch f.mode {
	case 0, 'I', '+':
	case 'D', '-':
		f.q.Want |= wire.WantDecr
	default:
		return c.complain("CLIENT_ERROR invalid mode for ma M token")
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = wire.OpArith
	a := c.do(&f.q)
	created := a.Bits&wire.ReplyCreated != 0
	a.Bits = 0
	switch a.Status {
	case wire.OK:
		if f.quiet && !created {
			return nil
		}
		digits := u64(a.Number)
		out := []byte("HD")
		if f.value {
			out = strconv.AppendInt([]byte("VA "), int64(len(digits)), 10)
		}
		out = f.tail(out, "ctOk", &a)
		if f.value {
			out = append(append(out, "\r\n"...), digits...)
		}
		return c.complain(string(out))
	case wire.NotFound:
		return c.complain(string(f.tail([]byte("NF"), "Ok", &a)))
	case wire.Exists:
		return c.complain(string(f.tail([]byte("EX"), "Ok", &a)))
	case wire.NotNumeric:
		return c.complain(notNumeric)
	}
	return c.complain(failure(a.Status))
}

// metaDebug answers what is known of a key's record.
func (c *conn) metaDebug(t []string) error {
	c.s.stats.meta.Add(1)
	if len(t) < 2 || len(t[1]) > wire.MaxKey {
		return c.complain(badFormat)
	}
	key := []byte(t[1])
	if len(t) > 2 && t[2] == "b" {
		k, ok := decodeKey(t[1])
		if !ok {
			return c.complain(badFormat)
		}
		key = k
	}
	a := c.do(&Request{Op: wire.OpGet, Want: wire.WantNoBump, Key: key})
	switch a.Status {
	case wire.OK:
	case wire.NotFound:
		return c.complain("EN")
	default:
		return c.complain(failure(a.Status))
	}
	out := []byte("ME ")
	if a.Bits&wire.ReplyBinary != 0 {
		out = base64.StdEncoding.AppendEncode(out, key)
	} else {
		out = append(out, key...)
	}
	exp, fetched := int64(-1), "no"
	if a.Expiry != 0 {
		exp = (int64(a.Clock) - int64(a.Expiry)) / 1000
	}
	if a.Bits&wire.ReplyFetched != 0 {
		fetched = "yes"
	}
	out = strconv.AppendInt(append(out, " exp="...), exp, 10)
	out = strconv.AppendUint(append(out, " la="...), a.Idle/1000, 10)
	out = strconv.AppendUint(append(out, " cas="...), a.CAS, 10)
	out = append(append(out, " fetch="...), fetched...)
	out = strconv.AppendInt(append(out, " cls=1 size="...), int64(wire.RecordSize(len(key), len(a.Value))), 10)
	return c.complain(string(out))
}
