package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a guest that did not boot is remembered, and only until the host reboots.
func TestProbeKVM(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, qemu), []byte("#!/bin/sh\n"), 0o755))
	t.Setenv("PATH", path)
	dir := t.TempDir()
	device := filepath.Join(dir, "kvm")
	note := filepath.Join(dir, "no-kvm")
	boots := 0
	try := func(err error) (bool, string, error) {
		return probe(t.Context(), device, dir, func(context.Context) error { boots++; return err })
	}

	yes, why, err := try(nil)
	require.NoError(t, err)
	require.False(t, yes)
	require.Contains(t, why, "no such file", "no device")
	require.Zero(t, boots)
	require.NoFileExists(t, note)
	require.NoError(t, os.WriteFile(device, nil, 0o644))

	yes, _, err = try(nil)
	require.NoError(t, err)
	require.True(t, yes)
	require.NoFileExists(t, note)

	full := errors.New("disk full")
	_, _, err = try(full)
	require.ErrorIs(t, err, full, "no reason to do without KVM")
	require.NoFileExists(t, note)

	ended, cancel := context.WithCancel(t.Context())
	_, _, err = probe(ended, device, dir, func(context.Context) error { cancel(); return fmt.Errorf("interrupted: %w", ErrBoot) })
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, note, "the user was impatient, not the guest dead")

	boots = 0
	for range 2 {
		yes, why, err = try(fmt.Errorf("it died: %w", ErrBoot))
		require.NoError(t, err)
		require.False(t, yes)
		require.NotEmpty(t, why)
	}
	require.Equal(t, 1, boots, "the second time it is known")
	require.NoError(t, os.WriteFile(note, []byte("another boot of the host"), 0o644))
	yes, _, err = try(nil)
	require.NoError(t, err)
	require.True(t, yes)

	t.Setenv("PATH", dir)
	_, _, err = try(nil)
	require.ErrorContains(t, err, "install QEMU")
}
