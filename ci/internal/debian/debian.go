// Package debian unpacks packages of Debian's releases into a cache folder,
// without installing anything and without dpkg or apt: headers and libraries to
// build against ([Unpack]), and the root file systems of guests ([Root]).
//
// It reads the archive that the host installs from, or $LAB_MIRROR, and trusts
// what the host's Debian keyring has signed. Any number of processes may ask for
// the same at once: one does the work and the others wait. A run that was
// interrupted leaves nothing that is taken for whole.
package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// ErrNoPackage: the release has no such package, or no package that a
// dependency asks for.
var ErrNoPackage = errors.New("no such package")

// revision is part of what a folder is named after. It changes when folders
// made by older versions of this package are not what they should be.
const revision = 1

// Unpack returns a folder, below the cache folder, with the named packages of a release ("bookworm",
// "trixie", "sid") for an architecture ("amd64", "arm64"), without what they
// depend on. The folder is shared: it must not be changed. /bin, /lib and the
// like are symbolic links into /usr, as on every Debian since 12.
//
// The package index is asked for again after a day, so the folder can be
// another one when the release has a newer version. Without a network the last
// index serves.
func Unpack(ctx context.Context, folder, release, arch string, packages ...string) (dir string, err error) {
	return hostArchive(release, arch).make(ctx, folder, tree, packages)
}

// Root returns a root file system with the named packages and all that they
// depend on, essential packages included, as [Unpack] does. No maintainer
// script has run; users, alternatives, certificates and the cache of the dynamic
// linker are there. It is fit to be the read-only lower layer of a guest with a
// PID 1 that is not its own init.
func Root(ctx context.Context, folder, release, arch string, packages ...string) (dir string, err error) {
	return hostArchive(release, arch).make(ctx, folder, root, packages)
}

// Depends returns what a package of a release depends on: for a package that
// is empty but for that, such as linux-image-amd64.
func Depends(ctx context.Context, folder, release, arch, name string) (list []string, err error) {
	a := hostArchive(release, arch)
	base := a.base(folder)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return nil, fmt.Errorf("debian: %w", err)
	}
	err = a.withIndex(ctx, base, func(ix index) (err error) {
		list, err = ix.depends(base, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("debian: %s/%s: %w", release, arch, err)
	}
	return list, nil
}

func (ix index) depends(base, name string) ([]string, error) {
	// Reading an index takes a second.
	known := filepath.Join(base, "depends-"+digest([]string{name})+".known")
	answer, _ := os.ReadFile(known)
	if of, list, ok := strings.Cut(string(answer), " "); ok && of == ix.id {
		return strings.Fields(list), nil
	}
	all, err := ix.read()
	if err != nil {
		return nil, err
	}
	list, err := all.depends(name)
	if err != nil {
		return nil, err
	}
	return list, cache.WriteFile(known, []byte(ix.id+" "+strings.Join(list, " ")))
}

// kind is what is made of packages.
type kind string

const (
	tree kind = "tree"
	root kind = "root"
)

// base returns where everything of this release is kept.
func (a *archive) base(folder string) string {
	return filepath.Join(folder, "debian", a.release+"-"+a.arch)
}

// make returns the folder for those packages, from the cache if it has it.
func (a *archive) make(ctx context.Context, folder string, k kind, packages []string) (dir string, err error) {
	base := a.base(folder)
	packages = slices.Compact(slices.Sorted(slices.Values(packages)))
	if err = os.MkdirAll(base, 0o755); err == nil {
		err = a.withIndex(ctx, base, func(ix index) (err error) {
			dir, err = a.makeOf(ctx, ix, base, k, packages)
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("debian: %s of %s/%s: %w", k, a.release, a.arch, err)
	}
	return dir, nil
}

func (a *archive) makeOf(ctx context.Context, ix index, base string, k kind, packages []string) (string, error) {
	// Guests start often, and reading an index takes a second: what an index
	// gave for a request is kept.
	known := filepath.Join(base, fmt.Sprintf("%s-%s.known", k, digest(packages)))
	answer, _ := os.ReadFile(known)
	if of, name, ok := strings.Cut(string(answer), " "); ok && of == ix.id {
		if dir := filepath.Join(base, name); exists(dir) {
			return dir, nil
		}
	}
	all, err := ix.read()
	if err != nil {
		return "", err
	}
	chosen, err := all.named(packages)
	if k == root && err == nil {
		chosen, err = all.closure(packages)
	}
	if err != nil {
		return "", err
	}
	var versions []string
	for _, p := range chosen {
		versions = append(versions, p.Name+"="+p.Version)
	}
	name := fmt.Sprintf("%s-%s", k, digest(versions))
	dir := filepath.Join(base, name)
	if err := a.fill(ctx, dir, k, chosen); err != nil {
		return "", err
	}
	return dir, cache.WriteFile(known, []byte(ix.id+" "+name))
}

// fill makes a folder of packages unless it is there.
func (a *archive) fill(ctx context.Context, dir string, k kind, packages []*Package) error {
	unlock, err := cache.Lock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if exists(dir) {
		return nil
	}
	// An interrupted process left this folder; the lock says that no other process
	// uses it now.
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	defer os.RemoveAll(part)
	into, debs := filepath.Join(part, "tree"), filepath.Join(part, "debs")
	for _, d := range []string{into, debs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := mergeUsr(into, a.arch); err != nil {
		return err
	}
	// More than two keep the network busy while others decompress.
	g, work := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, p := range packages {
		g.Go(func() error {
			deb := filepath.Join(debs, fmt.Sprint(i))
			if err := a.download(work, p.Filename, deb, p.SHA256); err != nil {
				return err
			}
			defer os.Remove(deb)
			if err := extract(work, deb, into); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if k == root {
		if err := finish(ctx, into, a.arch, packages); err != nil {
			return err
		}
	}
	return os.Rename(into, dir)
}

func digest(words []string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q", revision, words))
	return fmt.Sprintf("%x", sum[:8])
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
