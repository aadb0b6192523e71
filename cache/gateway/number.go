package gateway

import (
	"strconv"
	"time"
)

// number reads what C's strtoll and strtoull read of a token: spaces, a sign, digits, and
// then the end or a space.
func number(tok string) (n uint64, negative, ok bool) {
	space := func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
	for tok != "" && space(tok[0]) {
		tok = tok[1:]
	}
	if tok != "" && (tok[0] == '+' || tok[0] == '-') {
		negative, tok = tok[0] == '-', tok[1:]
	}
	i := 0
	for i < len(tok) && tok[i] >= '0' && tok[i] <= '9' {
		i++
	}
	if i < len(tok) && !space(tok[i]) {
		return 0, false, false
	}
	n, err := strconv.ParseUint(tok[:i], 10, 64)
	return n, negative, err == nil
}

// unsigned parses a number, and refuses one that looks negative.
func unsigned(tok string) (uint64, bool) {
	n, negative, ok := number(tok)
	if negative {
		n = -n
	}
	return n, ok && !(negative && int64(n) < 0)
}

// signed returns the low 32 bits of a signed number, as memcached takes them.
func signed(tok string) (int32, bool) {
	n, negative, ok := number(tok)
	if negative {
		return int32(-n), ok && n <= 1<<63
	}
	return int32(n), ok && n < 1<<63
}

const badFormat = "CLIENT_ERROR bad command line format"

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

func u64(n uint64) string { return strconv.FormatUint(n, 10) }

func number64(name string, n uint64) [2]string { return [2]string{name, u64(n)} }
