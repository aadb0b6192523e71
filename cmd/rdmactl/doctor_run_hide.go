package main

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

var (
	// A word of hexadecimal digits, dots and colons may be an address, with a
	// port behind it.
	addressLike = regexp.MustCompile(`[0-9a-fA-F.:]{3,}`)
	// Addresses of Ethernet and InfiniBand interfaces, and GUIDs.
	linkAddress = regexp.MustCompile(`^(([0-9a-fA-F]{2}:){5,}[0-9a-fA-F]{2}|([0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4})$`)
)

const hidden = "<address>"

// hideAddresses takes out of a text whatever looks like an address.
func hideAddresses(s string) string {
	return addressLike.ReplaceAllStringFunc(s, func(word string) string {
		// The punctuation behind an address looks like a part of it.
		for core := word; core != ""; core = core[:len(core)-1] {
			rest := word[len(core):]
			if _, err := netip.ParseAddr(core); err == nil || linkAddress.MatchString(core) {
				return hidden + rest
			}
			if _, err := netip.ParseAddrPort(core); err == nil {
				return hidden + core[strings.LastIndex(core, ":"):] + rest
			}
			if !strings.ContainsAny(core[len(core)-1:], ".:") {
				break
			}
		}
		return word
	})
}

// gidKind says what a GID is without telling it.
func gidKind(g verbs.GIDEntry) string {
	a := g.GID.Addr()
	switch {
	case g.Type == verbs.GIDInfiniBand:
		return "InfiniBand"
	case a.Is4():
		return "IPv4"
	case a.IsLinkLocalUnicast():
		return "link-local"
	}
	return "IPv6"
}
