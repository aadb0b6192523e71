package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// CheckHost returns what is wrong with the configuration on this host: that it has less memory, or that the
// snapshot cannot be read or written, to which it writes an empty file and removes it. [Listen] refuses the
// configuration with the same error. Too little space for a snapshot of all the memory is logged.
func (c Config) CheckHost() error {
	c.defaults()
	if all := hostMemory(); all > 0 && uint64(c.Memory) > all {
		return fmt.Errorf("cache: memory of %.1f GiB: this host has %.1f GiB", float64(c.Memory)/(1<<30), float64(all)/(1<<30))
	}
	if c.Snapshot == "" {
		return nil
	}
	if err := checkSnapshot(c.Snapshot); err != nil {
		return fmt.Errorf("cache: snapshot: %w", err)
	}
	if free, ok := freeSpace(filepath.Dir(c.Snapshot)); ok && free < uint64(c.Memory) {
		c.Logger.Warn("cache: there may be too little space for the snapshot", slog.String("file", c.Snapshot), slog.Uint64("free", free), slog.Int("memory", c.Memory))
	}
	return nil
}

// checkSnapshot returns why a snapshot could not be read from path, or written there.
func checkSnapshot(path string) error {
	switch st, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	default:
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".check-*")
	var failed *fs.PathError
	if errors.As(err, &failed) { // its path is that of the file for the trial
		return fmt.Errorf("no file can be created in %s: %w", filepath.Dir(path), failed.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
