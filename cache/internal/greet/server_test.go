package greet

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client is admitted by the server that it means alone: the one that has the name that the client has
// written, or the address to which it has connected.
func TestClientsOfOtherServers(t *testing.T) {
	elsewhere := netip.MustParseAddrPort("10.0.0.2:7481")
	names := []string{"cache1:7481", "vip:7481"}
	for _, c := range []struct {
		wrote string
		to    netip.AddrPort
		names []string
		here  string // empty: it is this server
	}{
		{wrote: "anything:7481", to: at},
		{wrote: "10.0.0.1:7481", to: at},
		{wrote: "anything:7481", to: elsewhere, here: "10.0.0.1:7481"},
		{wrote: "10.0.0.2:7481", to: elsewhere, here: "10.0.0.1:7481"},
		{wrote: "anything:7481", here: "10.0.0.1:7481"},
		{wrote: "cache1:7481", to: at, names: names},
		{wrote: "vip:7481", to: elsewhere, names: names},
		{wrote: "10.0.0.1:7481", to: at, names: names},
		{wrote: "cache2:7481", to: at, names: names, here: "cache1:7481"},
		{wrote: "cache1:7482", to: at, names: names, here: "cache1:7481"},
		{wrote: "10.0.0.2:7481", to: elsewhere, names: names, here: "cache1:7481"},
		{to: at, names: names, here: "cache1:7481"},
	} {
		client := NewClient(Hello{Transport: TCP, Server: c.wrote, Address: c.to}, key)
		h, err := ReadHello(client.Hello())
		require.NoError(t, err)
		err = h.Check(c.names, at)
		require.Equal(t, c.here == "", err == nil, "%+v: %v", c, err)
		require.NoError(t, h.Check(c.names, netip.AddrPort{}), "a connection without an address")

		// The client learns where it is, from a server with a key or without.
		for _, theirs := range [][]byte{nil, key} {
			client.key = theirs
			s := NewServer(client.Hello(), theirs)
			said := s.Last(err)
			if !s.Open() {
				_, perr := client.HandleChallenge(s.Challenge())
				require.NoError(t, perr)
				perr = client.HandleVerdict(said)
				require.Equal(t, c.here == "", perr == nil)
				said = newReply(other, nil, c.here)
				if c.here != "" {
					require.Equal(t, &OtherError{c.wrote, c.here}, perr)
				}
			}
			if c.here != "" {
				_, perr := client.HandleChallenge(said)
				require.Equal(t, &OtherError{c.wrote, c.here}, perr)
			}
		}
	}
	require.EqualError(t, &OtherError{"a:7481", "b:7481"}, `the server is "b:7481", and not "a:7481"`)
}
