package debian

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseRelease(t *testing.T) {
	for file, want := range map[string][2]string{
		"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n": {"12", "bookworm"},
		"ID=debian\nVERSION_CODENAME=forky\n":                 {"", "forky"}, // testing has no number
		"ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n": {},
		"": {},
	} {
		version, codename := parseRelease(file)
		require.Equal(t, want, [2]string{version, codename}, file)
	}
}
