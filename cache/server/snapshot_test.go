package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

func newStore(t *testing.T, epoch uint32) *store.Store {
	a, err := arena.New(64 << 10)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, 1<<20))
	require.NoError(t, err)
	s, err := store.New(store.Config{Epoch: epoch, Secret: wire.Secret{uint64(epoch)}, Arena: a, Log: 64,
		AllocTable: plainTable, FreeTable: func([]byte) {}})
	require.NoError(t, err)
	return s
}

func plainTable(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{} }

func fill(s *store.Store, n int) {
	for i := range n {
		s.Do(1, &wire.Request{Op: wire.OpSet, Key: fmt.Append(nil, i), Value: fmt.Append(nil, "value ", i), Expiry: int64(i) * 1000})
	}
}

// The file is whole or it is not there, no other user can read it, and nothing is left beside it.
func TestWriteSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	s := newStore(t, 1)
	fill(s, 100)
	require.NoError(t, os.WriteFile(path, []byte("an older one"), 0o644))
	n, err := writeSnapshot(path, s, 1)
	require.NoError(t, err)
	require.Equal(t, 100, n)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	_, h, err := snapshot.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	next := newStore(t, 2)
	restored, read, err := readSnapshot(bytes.NewReader(b), next, 1, h.Saved+50_000, 2)
	require.NoError(t, err)
	require.Equal(t, 100, read)
	require.Equal(t, 50, restored, "half have expired, and the first one never does")
	a := next.Do(1, &wire.Request{Op: wire.OpGet, Key: []byte("51")})
	require.Equal(t, "value 51", string(a.Value))
	require.Equal(t, uint64(1001), a.Expiry)
	// A clock that went back makes nothing live longer than it had left.
	next = newStore(t, 3)
	restored, _, err = readSnapshot(bytes.NewReader(b), next, 1, h.Saved-1_000_000, 3)
	require.NoError(t, err)
	require.Equal(t, 100, restored)
	a = next.Do(1, &wire.Request{Op: wire.OpGet, Key: []byte("51")})
	require.Equal(t, uint64(51_001), a.Expiry)

	_, _, err = readSnapshot(bytes.NewReader(b[:len(b)-1]), newStore(t, 4), 1, h.Saved, 4)
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	_, _, err = readSnapshot(bytes.NewReader(b), newStore(t, 1), 1, h.Saved, 1)
	require.ErrorContains(t, err, "by chance")

	_, err = writeSnapshot(filepath.Join(t.TempDir(), "no", "such", "folder"), s, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// host is a server without a device, as far as a snapshot needs one.
func host(t *testing.T, path string, out *bytes.Buffer) *Server {
	s := bare(&net.TCPAddr{}, Config{Snapshot: path, MaxValue: 60 << 10, Log: 64, Logger: slog.New(slog.NewTextHandler(out, nil))})
	s.store, s.epoch = newStore(t, 9), 9
	s.tables.register = func(n int) (memory, error) { return &piece{mem: make([]byte, n)}, nil }
	return s
}

// A snapshot is read once: another life would find values in it that have changed since.
func TestSnapshotIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	s := host(t, path, &out)
	require.NoError(t, s.warm(path))
	require.Contains(t, out.String(), "begins empty")
	before := newStore(t, 1)
	fill(before, 10)
	_, err := writeSnapshot(path, before, 1)
	require.NoError(t, err)
	require.NoError(t, s.warm(path))
	require.Equal(t, 10, s.store.Stats().Items)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A server that is killed while it saves leaves half a file, which the next life removes, or the next
// one that saves. It is never read as a snapshot.
func TestKilledWhileSaving(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	half := func() { require.NoError(t, os.WriteFile(path+writing, []byte("half a sna"), 0o644)) }
	half()
	s := host(t, path, &out)
	require.NoError(t, s.warm(path))
	require.Contains(t, out.String(), "there is no snapshot")
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)

	half()
	fill(s.store, 10)
	n, err := s.Save()
	require.NoError(t, err)
	require.Equal(t, 10, n)
	left, err = os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm(), "what was left was readable to all")

	next := host(t, path, &out)
	next.store, next.epoch = newStore(t, 10), 10
	require.NoError(t, next.warm(path))
	require.Equal(t, 10, next.store.Stats().Items)
}

// A file that is damaged is put aside, and the server begins empty and says so.
func TestDamagedSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	before := newStore(t, 1)
	fill(before, 10)
	_, err := writeSnapshot(path, before, 1)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	var out bytes.Buffer
	s := host(t, path, &out)
	require.NoError(t, s.warm(path))
	require.Zero(t, s.store.Stats().Items, "nor is there what was read before the damage")
	require.Contains(t, out.String(), "level=ERROR")
	require.Contains(t, out.String(), "damaged")
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Stat(path + taken)
	require.NoError(t, err, "for who wants to look at it")
}

// After Save nothing changes any more, and there is no Save while clients may change something.
func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	s := host(t, path, &out)
	s.clients = map[uint64]*client{1: {}}
	_, err := s.Save()
	require.ErrorContains(t, err, "connected")
	delete(s.clients, 1)
	_, err = s.Save()
	require.NoError(t, err)
	_, err = s.Do(t.Context(), &wire.Request{Op: wire.OpSet})
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Save()
	require.ErrorIs(t, err, ErrClosed)
	n, err := (&Server{}).Save()
	require.NoError(t, err)
	require.Zero(t, n)
}
