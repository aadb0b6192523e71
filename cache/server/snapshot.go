package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/store"
)

// taken is what a snapshot is called from the moment it is read: no later life of the server
// finds it, for what has changed since is not in it.
const taken = ".taken"

// writing is what it is called until it is whole. A server that is killed while writing leaves it
// behind: it has one name, so that there is no more than one, and the next life removes it.
const writing = ".writing"

// Save writes all records to the file Snapshot of [Config], and returns how many there
// are. It is called after Serve and before Close: from then on there are no changes, and
// [Server.Do] returns [ErrClosed]; a client that is still connected can at most READ. Without
// such a file it does nothing.
func (s *Server) Save() (records int, err error) {
	path := s.cfg.Snapshot
	if path == "" {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("cache: save: %w", ErrClosed)
	}
	s.closed = true
	records, err = writeSnapshot(path, s.store, s.now())
	if err != nil {
		err = fmt.Errorf("cache: save: %w", err)
	}
	return records, err
}

// writeSnapshot replaces the file at path by a whole one, or leaves it as it was.
func writeSnapshot(path string, s *store.Store, now uint64) (n int, err error) {
	if err := clearWriting(path); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path+writing, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
			return
		}
		err = syncFolder(path)
	}()
	h := s.Head(now, time.Now().UnixMilli())
	w, err := snapshot.NewWriter(f, &h)
	if err != nil {
		return 0, err
	}
	if err := s.Save(now, func(it *snapshot.Item) error { n++; return w.Put(it) }); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return n, f.Sync()
}

// clearWriting removes the file of a server that was killed while writing.
func clearWriting(path string) error {
	if err := os.Remove(path + writing); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes the name of a file, or its absence, outlive a power failure.
func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// warm restores the records of the last life, if it left any. A damaged file is no failure: the server
// begins empty, and logs why. A file that cannot be moved away is one: a later life would find it, and
// with it values that are long gone.
func (s *Server) warm(path string) error {
	if err := clearWriting(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.cfg.Logger.Info("cache: there is no snapshot: the cache begins empty", "file", path)
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	aside, err := takenName(path)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Rename(path, aside), syncFolder(path)); err != nil {
		return err
	}
	there, read, err := readSnapshot(f, s.store, s.now(), time.Now().UnixMilli(), s.epoch)
	if err != nil {
		s.cfg.Logger.Error("cache: the snapshot is not used: the cache begins empty", "file", aside, "error", err)
		return s.empty()
	}
	s.cfg.Logger.Info("cache: records of the last life", "file", path, "records", there, "gone", read-there)
	return os.Remove(aside)
}

// takenName returns a name for a snapshot that is about to be read. Files that have such names already
// were not restored, and stay.
func takenName(path string) (string, error) {
	name := path + taken
	for n := 1; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = path + taken + "." + strconv.Itoa(n)
	}
}

// readSnapshot returns how many records there are, of how many that it read: the others have expired, or
// were evicted since there is less memory. After an error the store is of no use.
func readSnapshot(r io.Reader, s *store.Store, now uint64, wall int64, epoch uint32) (there, read int, err error) {
	in, h, err := snapshot.NewReader(r)
	if err != nil {
		return 0, 0, err
	}
	if h.Epoch == epoch {
		return 0, 0, errors.New("by chance this life has the number of the last one")
	}
	// Clocks that went back let records live as long as they had left.
	passed := uint64(max(wall-h.Saved, 0))
	keep := s.Resume(now, &h, passed)
	var it snapshot.Item
	for {
		if err := in.Next(&it); errors.Is(err, io.EOF) {
			return s.Stats().Items, read, nil
		} else if err != nil {
			return 0, read, err
		}
		read++
		if keep {
			s.Restore(now, &it, passed)
		}
	}
}
