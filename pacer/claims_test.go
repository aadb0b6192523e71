package pacer

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/declared"
)

// Each claim of the table in doc.go names what exists, and a test that does.
func TestClaims(t *testing.T) {
	has, tests, err := declared.In(".")
	require.NoError(t, err)
	shaper, itsTests, err := declared.In("internal/shaper")
	require.NoError(t, err)
	maps.Copy(tests, itsTests)
	for name := range shaper {
		has[name] = has[name] || strings.Contains(name, ".")            // T.Method
		has["shaper."+name[strings.LastIndexByte(name, '.')+1:]] = true // methods without their type, too
	}
	require.False(t, has["shaper.Nothing"])
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "# Claims")
	require.True(t, ok)
	row := regexp.MustCompile(`(?m)^//\t(\d+) +(.+?)   +([\w., ]+?)   +(Test\w+)$`)
	claim := 0
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		claim++
		require.Equal(t, strconv.Itoa(claim), m[1])
		for _, name := range strings.Split(m[3], ", ") {
			require.True(t, has[name], "claim %d: there is no %s", claim, name)
		}
		require.True(t, tests[m[4]], "claim %d: there is no %s", claim, m[4])
	}
	require.Equal(t, 20, claim)
}

// The terms of the seed are in the picture, and in the code.
func TestTermsOfTheSeed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, picture, _ := strings.Cut(string(text), "# The picture")
	picture, _, _ = strings.Cut(picture, "# What it guarantees")
	var code strings.Builder
	for _, folder := range []string{".", "internal/shaper"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
				b, err := os.ReadFile(name)
				require.NoError(t, err)
				code.Write(b)
			}
		}
	}
	low := strings.ToLower(strings.ReplaceAll(code.String(), "\n// ", " "))
	for term, ours := range map[string]string{
		"NIC": "network interface", "command queue": "command queue", "scheduler": "sorts the commands",
		"hash": "hash", "flow queues": "flow queue", "slicing units": "slicing unit", "MCU": "(mcu)", "sub-requests": "sub-request", "MTU": "mtu",
		"OrdPktActive": "ordpktactive", "RspPktLen": "rsppktlen", "traffic shaper": "shaper", "arbitration": "arbitrat", "round robin": "roundrobin",
		"priority": "priority", "classes": "class", "speed adjustment": "exceeds", "threshold": "threshold", "passed over": "passed over",
		"output buffer": "flush", "PCT": "credit", "EE": "completion", "priority flow control": "priority flow control", "outbound": "outbound", "PUTs": "puts",
		"traffic classes": "traffic shaping class", "bandwidth shares": "share", "source table": "requests", "retry buffer": "issued again", "GET": "get",
		"atomics": "atomic", "responses": "response",
	} {
		require.True(t, strings.Contains(picture, term), term)
		require.True(t, strings.Contains(low, ours), "%s: %s", term, ours)
	}
	// Those of the device, and of more than one piece of code.
	for _, term := range []string{"HI", "HNI", "ATU", "IXE", "parser", "packet buffer", "LPE", "MST", "DMA", "OXE", "switch fabric"} {
		require.Contains(t, picture, term)
	}
}
