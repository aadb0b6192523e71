package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// kvmLimit is many times what a boot with KVM takes.
const kvmLimit = 30 * time.Second

// ProbeKVM reports whether a guest boots with KVM, and why not: the device may be
// there and still not run a stock kernel. That a guest did not boot is
// remembered until the host reboots; nothing else is.
func ProbeKVM(ctx context.Context, c Config, cacheDir string) (bool, string, error) {
	c.Accel, c.Clock, c.Topo, c.Hosts, c.Shares, c.Needs, c.CPU = "kvm", "wall", "none", 1, nil, nil, ""
	return probe(ctx, "/dev/kvm", cacheDir, func(ctx context.Context) error {
		m, err := Start(ctx, &c, 0, filepath.Join(c.Dir, "probe"), nil)
		if err == nil {
			m.Close()
		}
		return err
	})
}

func probe(ctx context.Context, device, cacheDir string, boots func(context.Context) error) (bool, string, error) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false, err.Error(), nil
	}
	f.Close()
	if _, err := exec.LookPath(qemu); err != nil {
		return false, "", fmt.Errorf("%w: install QEMU (Debian: qemu-system-x86)", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false, err.Error(), nil
	}
	unlock, err := cache.Lock(ctx, filepath.Join(cacheDir, "kvm.lock"))
	if err != nil {
		return false, "", err
	}
	defer unlock()
	note := filepath.Join(cacheDir, "no-kvm")
	if b, err := os.ReadFile(note); err == nil && bytes.Equal(b, boot) {
		return false, "no guest booted with it since this host did", nil
	}
	limit, cancel := context.WithTimeout(ctx, kvmLimit)
	defer cancel()
	err = boots(limit)
	switch {
	case err == nil:
		return true, "", nil
	case ctx.Err() != nil:
		return false, "", context.Cause(ctx)
	case !errors.Is(err, ErrBoot):
		return false, "", err // the same as without KVM
	}
	if werr := cache.WriteFile(note, boot); werr != nil {
		return false, "", werr
	}
	return false, err.Error(), nil
}
