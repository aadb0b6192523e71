// Package cache is the folder in which the lab keeps what it downloads and
// makes, for any number of programs and checkouts at once: locks that a context
// ends, files that appear whole, and folders of one run that are removed by a
// later one if their owner was killed.
package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is $LAB_CACHE, or goverbs-lab in the user's cache folder.
func Dir() (string, error) {
	if dir := os.Getenv("LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder (set LAB_CACHE): %w", err)
	}
	return filepath.Join(dir, "goverbs-lab"), nil
}

// Lock takes an advisory lock on a file that it makes. The lock ends with
// unlock, or with the process.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
}

// WriteFile makes a file appear under its name when all of it is there.
func WriteFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename it is gone already
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// RunDir makes a folder that belongs to this process until done is called, and
// removes those of processes that are gone.
func RunDir(ctx context.Context, dir string) (run string, done func(), err error) {
	runs := filepath.Join(dir, "run")
	// A process holds this lock while it makes or removes folders, so that no folder is
	// seen before it is locked.
	unlock, err := Lock(ctx, runs+".lock")
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return "", nil, err
	}
	old, _ := filepath.Glob(filepath.Join(runs, "*"))
	for _, d := range old {
		if free, err := tryLock(filepath.Join(d, "lock")); err == nil {
			os.RemoveAll(d)
			free()
		}
	}
	if run, err = os.MkdirTemp(runs, ""); err != nil {
		return "", nil, err
	}
	release, err := tryLock(filepath.Join(run, "lock"))
	if err != nil {
		os.RemoveAll(run)
		return "", nil, err
	}
	return run, func() {
		os.RemoveAll(run)
		release()
	}, nil
}

func tryLock(path string) (func(), error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
