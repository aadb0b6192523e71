package gateway

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// begin checks what all meta commands check, and returns the command's flags. If it returns nil it
// has replied.
func (c *conn) begin(t []string, first int, long, mistake string) (*flags, error) {
	c.n.add(metas, 1)
	switch {
	case len(t[1]) > wire.MaxKey:
		return nil, c.complain(badFormat)
	case len(t) > maxFlags:
		return nil, c.complain(long)
	}
	f, m := c.parse(t[1], t[first:])
	if m != "" {
		if mistake != "" {
			m = mistake
		}
		return nil, c.complain(m)
	}
	return f, nil
}

// reply writes a code and the return flags behind it.
func (c *conn) reply(f *flags, code, have string, a *kv.Reply) error {
	return c.write(f.tail(append(c.w.AvailableBuffer(), code...), have, a))
}

func (c *conn) metaGet(t []string) error {
	f, err := c.begin(t, 2, "CLIENT_ERROR options flags are too long", "")
	if f == nil {
		return err
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = kv.OpGet
	f.q.Want &^= kv.WantCompare | kv.WantStale
	f.q.Want |= kv.WantWin
	a := c.do(&f.q)
	switch a.Status {
	case kv.OK:
	case kv.NotFound:
		if f.quiet {
			return nil
		}
		return c.reply(f, "EN", "Ok", &a)
	default:
		return c.complain(failure(a.Status))
	}
	out := c.w.AvailableBuffer()
	if f.value {
		out = strconv.AppendInt(append(out, "VA "...), int64(len(a.Value)), 10)
	} else {
		out = append(out, "HD"...)
	}
	out = f.tail(out, "stcflhOk", &a)
	for _, b := range []struct {
		bit  uint16
		text string
	}{{kv.ReplySent, " Z"}, {kv.ReplyStale, " X"}, {kv.ReplyWon, " W"}} {
		if a.Bits&b.bit != 0 {
			out = append(out, b.text...)
		}
	}
	if err := c.write(out); err != nil || !f.value {
		return err
	}
	return c.write(a.Value)
}

var modes = map[byte]kv.Op{
	0: kv.OpSet, 'S': kv.OpSet, 'E': kv.OpAdd, 'A': kv.OpAppend, 'P': kv.OpPrepend, 'R': kv.OpReplace,
}

func (c *conn) metaSet(t []string) error {
	c.n.add(metas, 1)
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
	f, mistake := c.parse(t[1], t[3:])
	op, known := modes[f.mode]
	switch {
	case mistake != "":
	case !known:
		mistake = "CLIENT_ERROR invalid mode for ms M token"
	case f.opaqueTooLong():
		mistake = opaqueTooLong
	case c.tooLarge(string(f.key), f.q.Flags, int(n)):
		mistake = failure(kv.TooLarge)
		c.n.add(tooLarge, 1)
		c.drop(f.key)
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
	if op == kv.OpReplace && f.cas { // as with the cas command
		f.q.Op = kv.OpSet
	}
	a := c.do(&f.q)
	if a.Status == kv.TooLarge && !joins(op) { // the store's limit is lower than memcached's
		c.drop(f.key)
		return c.complain(failure(kv.TooLarge))
	}
	var code string
	switch a.Status {
	case kv.OK:
		if f.quiet {
			return nil
		}
		code = "HD"
	case kv.Exists:
		code = "EX"
	case kv.NotFound:
		code = "NF"
	case kv.NotStored, kv.TooLarge:
		code = "NS"
	default:
		return c.complain(failure(a.Status))
	}
	a.Bits = 0 // the key is shown as it came
	return c.reply(f, code, "Okc", &a)
}

const badFlag = "CLIENT_ERROR invalid or duplicate flag"

func (c *conn) metaDelete(t []string) error {
	f, err := c.begin(t, 2, "CLIENT_ERROR options flags too long", badFlag)
	if f == nil {
		return err
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = kv.OpDelete
	a := c.do(&f.q)
	a.Bits = 0
	switch a.Status {
	case kv.OK:
		if f.quiet {
			return nil
		}
		return c.reply(f, "HD", "Ok", &a)
	case kv.Exists:
		return c.reply(f, "EX", "Ok", &a)
	case kv.NotFound:
		return c.reply(f, "NF", "Ok", &a)
	}
	return c.complain(failure(a.Status))
}

func (c *conn) metaCount(t []string) error {
	f, err := c.begin(t, 2, "CLIENT_ERROR options flags too long", badFlag)
	if f == nil {
		return err
	}
	switch f.mode {
	case 0, 'I', '+':
	case 'D', '-':
		f.q.Want |= kv.WantDecr
	default:
		return c.complain("CLIENT_ERROR invalid mode for ma M token")
	}
	if f.opaqueTooLong() {
		return c.complain(opaqueTooLong)
	}
	f.q.Op = kv.OpArith
	a := c.do(&f.q)
	created := a.Bits&kv.ReplyCreated != 0
	a.Bits = 0
	switch a.Status {
	case kv.OK:
		if f.quiet && !created {
			return nil
		}
		digits := u64(a.Number)
		if !f.value {
			return c.reply(f, "HD", "ctOk", &a)
		}
		if err := c.reply(f, "VA "+strconv.Itoa(len(digits)), "ctOk", &a); err != nil {
			return err
		}
		return c.complain(digits)
	case kv.NotFound:
		return c.reply(f, "NF", "Ok", &a)
	case kv.Exists:
		return c.reply(f, "EX", "Ok", &a)
	case kv.NotNumeric:
		return c.complain(notNumeric)
	}
	return c.complain(failure(a.Status))
}

// metaDebug replies with what is known of a key's record.
func (c *conn) metaDebug(t []string) error {
	c.n.add(metas, 1)
	if len(t) < 2 || len(t[1]) > wire.MaxKey {
		return c.complain(badFormat)
	}
	q := c.request(kv.OpGet, t[1])
	q.Want = kv.WantNoBump
	if len(t) > 2 && t[2] == "b" {
		k, ok := decodeKey(t[1])
		if !ok {
			return c.complain(badFormat)
		}
		q.Key = k
	}
	key, a := q.Key, c.ask(q)
	switch a.Status {
	case kv.OK:
	case kv.NotFound:
		return c.complain("EN")
	default:
		return c.complain(failure(a.Status))
	}
	out := append(c.w.AvailableBuffer(), "ME "...)
	// A key that did not come by a gateway can have what would end the line.
	if a.Bits&kv.ReplyBinary != 0 || bytes.ContainsAny(key, " \n\x00") {
		out = base64.StdEncoding.AppendEncode(out, key)
	} else {
		out = append(out, key...)
	}
	exp, fetched := int64(-1), "no"
	if a.Expiry != 0 {
		exp = (int64(a.Clock) - int64(a.Expiry)) / 1000
	}
	if a.Bits&kv.ReplyFetched != 0 {
		fetched = "yes"
	}
	out = strconv.AppendInt(append(out, " exp="...), exp, 10)
	out = strconv.AppendUint(append(out, " la="...), a.Idle/1000, 10)
	out = strconv.AppendUint(append(out, " cas="...), a.CAS, 10)
	out = append(append(out, " fetch="...), fetched...)
	out = strconv.AppendInt(append(out, " cls=1 size="...), int64(wire.RecordSize(len(key), len(a.Value))), 10)
	return c.write(out)
}

// parse reads the tokens behind a key. The flags are good until the next command.
func (c *conn) parse(key string, tokens []string) (f *flags, mistake string) {
	c.key = append(c.key[:0], key...)
	c.flags = flags{key: c.key, tokens: tokens}
	return &c.flags, c.flags.parse(key)
}
