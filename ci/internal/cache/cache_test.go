package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "lock")
	unlock, err := Lock(t.Context(), path)
	require.NoError(t, err)
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(stop) })
	_, err = Lock(ctx, path)
	require.ErrorIs(t, err, stop)
	unlock()
	unlock, err = Lock(t.Context(), path)
	require.NoError(t, err)
	unlock()
}

func TestOneHolderAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			unlock, err := Lock(t.Context(), path)
			require.NoError(t, err)
			require.EqualValues(t, 1, holders.Add(1))
			time.Sleep(time.Millisecond)
			holders.Add(-1)
			unlock()
		})
	}
	wg.Wait()
}

func TestFoldersOfTheDeadGo(t *testing.T) {
	dir := t.TempDir()
	mine, done, err := RunDir(t.Context(), dir)
	require.NoError(t, err)
	dead := filepath.Join(dir, "run", "dead")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "host0"), 0o755))
	other, otherDone, err := RunDir(t.Context(), dir)
	require.NoError(t, err)
	require.NoDirExists(t, dead, "nobody has it locked")
	require.DirExists(t, mine, "that is in use")
	done()
	require.NoDirExists(t, mine)
	otherDone()
	require.NoDirExists(t, other)
}

func TestFilesAppearWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, WriteFile(path, []byte("x")))
	require.NoError(t, WriteFile(path, []byte("yy")))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "yy", string(b))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
