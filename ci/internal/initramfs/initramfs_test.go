package initramfs

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArchive(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	w.Dir("dev")
	w.File("init", 0o755, []byte("hello"))
	w.File("empty", 0o644, nil)
	require.NoError(t, w.Close())
	b := buf.Bytes()
	require.Zero(t, len(b)%4)
	require.Equal(t, "070701", string(b[:6]))
	// Each header begins on a multiple of four.
	for i := 0; ; {
		j := bytes.Index(b[i:], []byte("070701"))
		if j < 0 {
			break
		}
		require.Zero(t, (i+j)%4)
		i += j + 1
	}
	if _, err := exec.LookPath("cpio"); err != nil {
		return
	}
	cmd := exec.Command("cpio", "-t", "--quiet")
	cmd.Stdin = &buf
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "dev init empty", strings.Join(strings.Fields(string(out)), " "))
}
