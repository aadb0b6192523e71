package debian

import (
	"cmp"
	"strings"
)

// compareVersions orders versions as deb-version(7) says: epoch, upstream
// version, Debian revision; "~" comes before everything, the end included.
func compareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	return cmp.Or(compareParts(ea, eb), compareParts(ua, ub), compareParts(ra, rb))
}

func splitVersion(v string) (epoch, upstream, revision string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

// compareParts compares pieces without digits and numbers by turns.
func compareParts(a, b string) int {
	for a != "" || b != "" {
		var na, nb string
		for (a != "" && !digit(a[0])) || (b != "" && !digit(b[0])) {
			if c := cmp.Compare(order(a), order(b)); c != 0 {
				return c
			}
			a, b = a[1:], b[1:]
		}
		na, a = number(a)
		nb, b = number(b)
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb)); c != 0 {
			return c
		}
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// order returns the rank of the first character of a piece: "~", the end of the
// piece, letters, all else.
func order(s string) int {
	switch {
	case s == "" || digit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'A' && s[0] <= 'Z' || s[0] >= 'a' && s[0] <= 'z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

// number cuts a number off, without its leading zeroes.
func number(s string) (n, rest string) {
	i := 0
	for i < len(s) && digit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[:i], "0"), s[i:]
}
