package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/internal/kernel"
)

// builtinTree is a kernel that has all modules built in.
func builtinTree(t *testing.T) *kernel.Tree {
	dir := t.TempDir()
	var list strings.Builder
	for _, m := range modules {
		fmt.Fprintf(&list, "kernel/%s.ko\n", strings.TrimSuffix(m, "?"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte(list.String()), 0o644))
	return &kernel.Tree{Modules: dir, Release: "6.9-test", Cache: t.TempDir()}
}

// Many labs of two checkouts start at once with an empty cache: each gets its
// own image, whole, and none takes another's away.
func TestImagesOfManyStarts(t *testing.T) {
	tree := builtinTree(t)
	programs := [][]byte{[]byte("one checkout"), []byte("another")}
	var want [2]string
	for i, p := range programs {
		b, err := archive(tree, p)
		require.NoError(t, err)
		want[i] = string(b)
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			path, err := image(t.Context(), tree, programs[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != want[i%2] {
				t.Errorf("image of checkout %d: %d bytes, %v", i%2, len(b), err)
			}
		})
	}
	wg.Wait()
	images, err := filepath.Glob(filepath.Join(tree.Cache, "initramfs-*"))
	require.NoError(t, err)
	require.Len(t, images, 2)
}

// What was not used for a day goes when another is made.
func TestOldImagesGo(t *testing.T) {
	tree := builtinTree(t)
	path, err := image(t.Context(), tree, []byte("old"))
	require.NoError(t, err)
	past := time.Now().Add(-2 * unusedFor)
	require.NoError(t, os.Chtimes(path, past, past))
	_, err = image(t.Context(), tree, []byte("new"))
	require.NoError(t, err)
	require.NoFileExists(t, path)
}
