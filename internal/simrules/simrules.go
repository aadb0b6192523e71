// Package simrules keeps the impairments of fabrics of simulated devices (docs/simhca.md).
package simrules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folders are those in which fabrics lie: the first if there is one.
var Folders = []string{"/dev/shm", "/tmp"}

// File returns the file with the rules of a fabric.
func File(fabric string) (string, error) {
	for _, root := range Folders {
		if _, err := os.Stat(root); err != nil {
			continue
		}
		dir := filepath.Join(root, fmt.Sprintf("simhca-fabric-%d", os.Geteuid()))
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		var there []string
		for _, e := range entries {
			if !strings.Contains(e.Name(), ".") {
				there = append(there, e.Name())
			}
		}
		if !slices.Contains(there, fabric) {
			return "", fmt.Errorf("no fabric %q in %s; there are: %s", fabric, dir, strings.Join(there, ", "))
		}
		return filepath.Join(dir, fabric+".impair"), nil
	}
	return "", fmt.Errorf("no folder %s", strings.Join(Folders, " or "))
}

// OwnFile returns the file with the rules of the fabric of this program's first device.
func OwnFile() (string, error) {
	first, _, _ := strings.Cut(os.Getenv("SIMHCA"), ",")
	_, fabric, ok := strings.Cut(first, "@")
	if !ok {
		return "", errors.New("SIMHCA names no fabric")
	}
	return File(fabric)
}

// Write replaces the file: devices never see half of one.
func Write(file string, rules ...string) error {
	next := file + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(append(rules, ""), "\n")), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// Clear removes the file, if there is one.
func Clear(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
