package gateway

import (
	"encoding/base64"
	"strconv"

	"github.com/goverbs/goverbs/cache/kv"
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
	q      kv.Request
}

// parse reads the tokens. Of several mistakes it returns the last one, but a flag that is
// unknown or given twice ends it.
func (f *flags) parse(key string) (mistake string) {
	f.q.Delta = 1
	var seen [127]bool
	text, bad := badFormat, false
	wrong := func(s string) { bad, text = true, s }
	for _, t := range f.tokens {
		o, rest := t[0], t[1:]
		if o >= 127 || seen[o] {
			return "CLIENT_ERROR duplicate flag"
		}
		seen[o] = true
		switch o {
		case 'b':
			f.binary = true
			f.q.Want |= kv.WantBinary
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
				f.q.Want |= kv.WantVivify
			case 'T':
				f.q.Expiry = at
				f.q.Want |= kv.WantTouch
				f.q.Vivify = at // of one that comes after N
			case 'R':
				f.q.Recache = at
				f.q.Want |= kv.WantRecache
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
			f.q.Want |= kv.WantCompare
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
			f.q.Want |= kv.WantStale
		case 'v':
			f.value = true
		case 'u':
			f.q.Want |= kv.WantNoBump
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
func (f *flags) tail(out []byte, have string, a *kv.Reply) []byte {
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
			out = putKey(out, f.key, f.binary || a.Bits&kv.ReplyBinary != 0)
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
			if a.Bits&kv.ReplyFetched != 0 {
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
