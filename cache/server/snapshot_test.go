package server

import (
	"bytes"
	"context"
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
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/verbs"
)

func newStore(t *testing.T, epoch uint32) *store.Store { return newStoreOf(t, epoch, 1<<20) }

func newStoreOf(t *testing.T, epoch uint32, memory int) *store.Store {
	a, err := arena.New(64 << 10)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, memory))
	require.NoError(t, err)
	s, err := store.New(store.Config{Epoch: epoch, Secret: wire.Secret{uint64(epoch)}, Arena: a, Log: 64,
		AllocTable: plainTable, FreeTable: func([]byte) {}})
	require.NoError(t, err)
	return s
}

func plainTable(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{} }

func fill(s *store.Store, n int) {
	for i := range n {
		s.Do(1, &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: fmt.Append(nil, i), Value: fmt.Append(nil, "value ", i), Expiry: int64(i) * 1000}})
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
	a := next.Do(1, &wire.Request{Request: kv.Request{Op: kv.OpGet, Key: []byte("51")}})
	require.Equal(t, "value 51", string(a.Value))
	require.Equal(t, uint64(1001), a.Expiry)
	// A clock that went back makes nothing live longer than it had left.
	next = newStore(t, 3)
	restored, _, err = readSnapshot(bytes.NewReader(b), next, 1, h.Saved-1_000_000, 3)
	require.NoError(t, err)
	require.Equal(t, 100, restored)
	a = next.Do(1, &wire.Request{Request: kv.Request{Op: kv.OpGet, Key: []byte("51")}})
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

// A server that has taken its records and cannot begin leaves them to the next life.
func TestSnapshotOfServerThatCannotBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	before := newStore(t, 1)
	fill(before, 10)
	_, err := writeSnapshot(path, before, 1)
	require.NoError(t, err)
	s := host(t, path, &out)
	s.dev, s.cfg.DC.Responders = &verbs.Device{}, 1 // that has no GID
	require.Error(t, s.begin())
	s = host(t, path, &out)
	s.epoch = 10
	require.NoError(t, s.begin())
	require.Equal(t, 10, s.Stats().Items)
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

// What was not restored stays, whatever later lives leave.
func TestDamagedSnapshotsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	for _, text := range []string{"first", "", "second", ""} {
		if text == "" {
			before := newStore(t, 1)
			fill(before, 10)
			_, err := writeSnapshot(path, before, 1)
			require.NoError(t, err)
		} else {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		require.NoError(t, host(t, path, &out).warm(path))
	}
	for name, want := range map[string]string{path + taken: "first", path + taken + ".1": "second"} {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 2)
}

// Records for which a smaller memory has no room are gone, and are counted so.
func TestSnapshotIntoLessMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	before := newStoreOf(t, 1, 4<<20)
	for i := range 2000 {
		before.Do(1, &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: fmt.Append(nil, i), Value: make([]byte, 1000)}})
	}
	require.Equal(t, 2000, before.Stats().Items)
	_, err := writeSnapshot(path, before, 1)
	require.NoError(t, err)
	var out bytes.Buffer
	s := host(t, path, &out)
	require.NoError(t, s.warm(path))
	n := s.store.Stats().Items
	require.Less(t, n, 1000)
	require.Contains(t, out.String(), fmt.Sprintf("records=%d gone=%d", n, 2000-n))
}

// A server that is to end while its memory is set up does not go on, and the next life finds the snapshot.
func TestSetUpIsCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(path, []byte("a snapshot"), 0o600))
	s := bare(&net.TCPAddr{}, Config{Snapshot: path, Memory: 1 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.furnish(ctx), context.Canceled)
	require.FileExists(t, path)
}

// What a host cannot do is found out before there are records that it would lose.
func TestCheckHost(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	require.NoError(t, Config{Snapshot: path}.CheckHost())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	require.ErrorIs(t, Config{Snapshot: filepath.Join(dir, "none", "snapshot")}.CheckHost(), os.ErrNotExist)
	require.ErrorContains(t, Config{Snapshot: dir}.CheckHost(), "is no file")
	require.ErrorContains(t, Config{Memory: 1 << 55}.CheckHost(), "this host has")
	_, err = newServer(t.Context(), &net.TCPAddr{}, Config{Snapshot: filepath.Join(dir, "none", "snapshot")})
	require.ErrorIs(t, err, os.ErrNotExist)

	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	require.NoError(t, os.WriteFile(path, []byte("a snapshot"), 0o200))
	require.ErrorIs(t, Config{Snapshot: path}.CheckHost(), os.ErrPermission)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Chmod(dir, 0o500))
	require.ErrorIs(t, Config{Snapshot: path}.CheckHost(), os.ErrPermission)
	require.NoError(t, os.Chmod(dir, 0o700))
}

// After Save nothing changes any more.
func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	var out bytes.Buffer
	s := host(t, path, &out)
	_, err := s.Save()
	require.NoError(t, err)
	_, err = s.Do(t.Context(), &kv.Request{Op: kv.OpSet})
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Save()
	require.ErrorIs(t, err, ErrClosed)
	n, err := (&Server{}).Save()
	require.NoError(t, err)
	require.Zero(t, n)
}

// A queue pair that cannot be destroyed does not keep the records from the next life: its client may READ, and change
// nothing.
func TestSaveBesideQueuePairs(t *testing.T) {
	s, _ := tablesRig(t, func(int) error { return nil })
	defer s.Close()
	s.cfg.Snapshot = filepath.Join(t.TempDir(), "snapshot")
	id, c := s.attach(func(error) {}, true)
	s.put(t, 1)
	n, err := s.Save()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = s.take(id, c, wire.AppendRequest(nil, &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("k")}}))
	require.ErrorIs(t, err, ErrClosed)
}
