// Package kernel gets Debian's stock kernels into a cache folder, without
// installing anything on the host.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// suites is the Debian release that ships each kernel series.
var suites = map[string]string{"6.1": "bookworm", "6.12": "trixie"}

// Tree is an unpacked kernel package.
type Tree struct {
	Image   string // the bootable image
	Modules string // lib/modules/<release>
	Release string // such as "6.1.0-56-amd64"
	Cache   string // a folder for what is derived from the kernel
}

// Get answers the kernel of a series, "6.1" or "6.12", downloading it at the
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
	tree := filepath.Join(dir, "linux-"+series)
	unlock, err := cache.Lock(ctx, tree+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t, err := open(tree, tree); err == nil {
		return t, nil
	}
	if err := download(ctx, suite, tree); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", series, err)
	}
	return open(tree, tree)
}

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
			return &Tree{Image: images[0], Modules: modules, Release: release, Cache: derived}, nil
		}
	}
	return nil, fmt.Errorf("kernel: no modules of %s in %s", release, dir)
}

// download fetches exactly one package with an apt configuration of its own,
// so that the host's package sources stay as they are.
func download(ctx context.Context, suite, dir string) error {
	mirror, err := mirror()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "parts"} {
		if err := os.MkdirAll(filepath.Join(tmp, d), 0o755); err != nil {
			return err
		}
	}
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	if err := os.WriteFile(filepath.Join(tmp, "sources.list"), []byte(source), 0o644); err != nil {
		return err
	}
	apt := func(program string, args ...string) (string, error) {
		opts := []string{"-q",
			"-o", "Dir::Etc::sourcelist=" + tmp + "/sources.list",
			"-o", "Dir::Etc::sourceparts=" + tmp + "/parts",
			"-o", "Dir::State=" + tmp + "/state",
			"-o", "Dir::State::status=/var/lib/dpkg/status",
			"-o", "Dir::Cache=" + tmp + "/cache",
			"-o", "APT::Sandbox::User=root",
			"-o", "Acquire::Languages=none",
		}
		return run(ctx, tmp, program, append(opts, args...)...)
	}
	if _, err := apt("apt-get", "update"); err != nil {
		return err
	}
	// The meta package depends on the current kernel by its exact name; a
	// pattern would fetch every flavour.
	deps, err := apt("apt-cache", "depends", "linux-image-"+runtime.GOARCH)
	if err != nil {
		return err
	}
	name := regexp.MustCompile(`Depends: (linux-image-\d\S*)`).FindStringSubmatch(deps)
	if name == nil {
		return fmt.Errorf("no kernel package in %s", suite)
	}
	if _, err := apt("apt-get", "download", name[1]); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "linux-image-*.deb"))
	if len(debs) != 1 {
		return fmt.Errorf("%d packages came for %s", len(debs), name[1])
	}
	if _, err := run(ctx, tmp, "dpkg", "-x", debs[0], filepath.Join(tmp, "tree")); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "tree"), dir)
}

func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second // for what the program started itself
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", program, context.Cause(ctx))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return string(out), nil
}

// mirror is the Debian archive that this host installs from, or $LAB_MIRROR.
func mirror() (string, error) {
	if m := os.Getenv("LAB_MIRROR"); m != "" {
		return m, nil
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, f := range append(files, "/etc/apt/sources.list") {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if m := findMirror(string(b)); m != "" {
			return m, nil
		}
	}
	return "", errors.New("this host has no Debian package source: set LAB_MIRROR to an archive, or LAB_KERNEL to the folder of an unpacked kernel package")
}

var (
	oneLine = regexp.MustCompile(`(?m)^deb\s+(?:\[[^\]]*\]\s+)?(\S+/debian)/?\s`)
	deb822  = regexp.MustCompile(`(?m)^URIs:\s*(\S+/debian)/?\s*$`)
)

// findMirror finds an archive in the text of a sources file of either format.
func findMirror(sources string) string {
	for _, re := range []*regexp.Regexp{oneLine, deb822} {
		if m := re.FindStringSubmatch(sources); m != nil {
			return m[1]
		}
	}
	return ""
}
