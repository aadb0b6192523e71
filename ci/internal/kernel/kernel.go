// Package kernel gets Debian's stock kernels into a cache folder, without
// installing anything on the host.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// suites is the Debian release that ships each kernel series.
var suites = map[string]string{"6.1": "bookworm", "6.12": "trixie"}

// Tree is an unpacked kernel package.
type Tree struct {
	Image   string // the bootable image, or the kernel unpacked from it
	Packed  error  // why it is the image, which takes longer to boot
	Modules string // lib/modules/<release>
	Release string // such as "6.1.0-56-amd64"
	Cache   string // a folder for what is derived from the kernel
}

// Get returns the kernel of a series, "6.1" or "6.12", downloading it at the
// first time. $LAB_KERNEL names the folder of any unpacked kernel package
// instead, whatever the series.
func Get(ctx context.Context, series string) (*Tree, error) {
	dir, err := cache.Dir()
	if err != nil {
		return nil, err
	}
	if unpacked := os.Getenv("LAB_KERNEL"); unpacked != "" {
		return open(unpacked, filepath.Join(dir, "derived"))
	}
	suite, ok := suites[series]
	if !ok {
		return nil, fmt.Errorf("kernel: no series %q; there are 6.1 and 6.12, and LAB_KERNEL for others", series)
	}
	tree, err := current(ctx, dir, suite)
	if errors.Is(err, debian.ErrNoPackage) { // the release has the next kernel since it was asked
		tree, err = current(ctx, dir, suite)
	}
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", series, err)
	}
	return open(tree, filepath.Join(dir, "linux-"+series))
}

// current returns the folder of a release's current kernel.
func current(ctx context.Context, dir, suite string) (tree string, err error) {
	// The meta package depends on it by its exact name.
	list, err := debian.Depends(ctx, dir, suite, arch, "linux-image-"+arch)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list, regexp.MustCompile(`^linux-image-\d`).MatchString)
	if i < 0 {
		return "", errors.New("no kernel package in " + suite)
	}
	return debian.Unpack(ctx, dir, suite, arch, list[i])
}

// arch of the guests, as Debian names it.
const arch = "amd64"

// open finds image and modules in an unpacked package: of Debian, which has the
// image in boot/, or of Fedora, which has it beside the modules.
func open(dir, derived string) (*Tree, error) {
	var images []string
	for _, pattern := range []string{"boot/vmlinu[xz]-*", "lib/modules/*/vmlinuz", "usr/lib/modules/*/vmlinuz"} {
		if images, _ = filepath.Glob(filepath.Join(dir, pattern)); len(images) > 0 {
			break
		}
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("kernel: %d images in %s, want one: boot/vmlinuz-RELEASE or lib/modules/RELEASE/vmlinuz", len(images), dir)
	}
	_, release, debian := strings.Cut(filepath.Base(images[0]), "-")
	if !debian {
		release = filepath.Base(filepath.Dir(images[0]))
	}
	for _, lib := range []string{"lib", "usr/lib"} {
		modules := filepath.Join(dir, lib, "modules", release)
		if _, err := os.Stat(filepath.Join(modules, "kernel")); err == nil {
			if err := os.MkdirAll(derived, 0o755); err != nil {
				return nil, err
			}
			t := &Tree{Image: images[0], Modules: modules, Release: release, Cache: derived}
			if vmlinux, err := unpacked(t.Image, derived); err == nil {
				t.Image = vmlinux
			} else {
				t.Packed = err
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("kernel: no modules of %s in %s", release, dir)
}
