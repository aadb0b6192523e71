package layering

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reason is in a comment of a long file that says why its contents belong together.
var reason = regexp.MustCompile(`(?m)^// .*\bone file\b`)

// A file holds one idea, mostly in less than 400 lines. A longer one has a comment with the words "one file" and
// the reason. The ceiling is for files that have none, and falls with each that is split.
func TestFilesAreShort(t *testing.T) {
	const most, ceiling = 400, 22
	var long []string
	for _, f := range files(t) {
		b, err := os.ReadFile(filepath.Join("../..", f.path))
		require.NoError(t, err)
		if n := bytes.Count(b, []byte("\n")); n > most && !reason.Match(b) {
			long = append(long, fmt.Sprintf("%s has %d lines", f.path, n))
		}
	}
	require.LessOrEqual(t, len(long), ceiling, "files of more than %d lines, and no reason in them:\n%s", most, strings.Join(long, "\n"))
}
