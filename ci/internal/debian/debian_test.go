package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// file is one of a package; content that begins with "->" makes a symbolic
// link, a name that ends with "/" a folder.
type file struct {
	name, content string
	mode          int64
}

// makeDeb makes a package as dpkg-deb does.
func makeDeb(t *testing.T, compression string, files ...file) []byte {
	t.Helper()
	var data bytes.Buffer
	var z io.WriteCloser
	var err error
	switch compression {
	case "":
		z = struct {
			io.Writer
			io.Closer
		}{&data, io.NopCloser(nil)}
	case ".gz":
		z = gzip.NewWriter(&data)
	case ".xz":
		z, err = xz.NewWriter(&data)
	case ".zst":
		z, err = zstd.NewWriter(&data)
	}
	require.NoError(t, err)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Uid: os.Getuid(), Gid: os.Getgid()}
		if to, ok := strings.CutPrefix(f.content, "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, to, 0
		} else if to, ok := strings.CutPrefix(f.content, "="); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, to, 0
		} else if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := io.WriteString(w, f.content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	if compression != "" {
		require.NoError(t, z.Close())
	}
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, m := range []struct {
		name    string
		content []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.xz", []byte("odd")}, {"data.tar" + compression, data.Bytes()}} {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.content))
		deb.Write(m.content)
		if len(m.content)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	return deb.Bytes()
}

func TestExtract(t *testing.T) {
	for _, compression := range []string{"", ".gz", ".xz", ".zst"} {
		dir := t.TempDir()
		require.NoError(t, mergeUsr(dir, "amd64"))
		deb := filepath.Join(t.TempDir(), "deb")
		require.NoError(t, os.WriteFile(deb, makeDeb(t, compression,
			file{"./", "", 0o755}, file{"./lib/", "", 0o755}, file{"./lib/lib.so.1", "library", 0o644},
			file{"./usr/", "", 0o755}, file{"./usr/bin/", "", 0o755}, file{"./usr/bin/su", "program", 0o4755},
			file{"./usr/bin/sg", "=./usr/bin/su", 0}, file{"./usr/lib/lib.so", "->lib.so.1", 0o777},
			file{"./tmp/", "", 0o1777}, file{"./bin", "->usr/bin", 0o777}), 0o644))
		require.NoError(t, extract(t.Context(), deb, dir))
		b, err := os.ReadFile(filepath.Join(dir, "usr/lib/lib.so"))
		require.NoError(t, err, "a file in /lib is in /usr/lib")
		require.Equal(t, "library", string(b))
		st, err := os.Stat(filepath.Join(dir, "bin/sg"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755)|os.ModeSetuid, st.Mode())
		st, err = os.Stat(filepath.Join(dir, "tmp"))
		require.NoError(t, err)
		require.Equal(t, 0o777|os.ModeDir|os.ModeSticky, st.Mode())
	}
}

// A package writes into its folder alone, whatever it has in it.
func TestExtractStaysInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.Mkdir(outside, 0o755))
	for _, files := range [][]file{
		{{"../outside", "x", 0o644}},
		{{"./a", "->" + outside, 0o777}, {"./a/b", "x", 0o644}},
		{{"./a", "->../../../../../../../../tmp", 0o777}, {"./a/b", "x", 0o644}},
	} {
		deb := filepath.Join(t.TempDir(), "deb")
		require.NoError(t, os.WriteFile(deb, makeDeb(t, "", files...), 0o644))
		require.Error(t, extract(t.Context(), deb, t.TempDir()))
	}
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
	for _, broken := range []string{"", "!<arch>\n", "!<arch>\n" + strings.Repeat("x", 60)} {
		deb := filepath.Join(t.TempDir(), "deb")
		require.NoError(t, os.WriteFile(deb, []byte(broken), 0o644))
		require.Error(t, extract(t.Context(), deb, t.TempDir()))
	}
}

// quick makes keys that need no search for primes.
var quick = &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}

// fakeArchive is an archive with one release and a key of its own.
type fakeArchive struct {
	*archive
	served atomic.Int64
	mu     sync.Mutex
	files  map[string][]byte
	key    *openpgp.Entity
	server *httptest.Server
}

func newArchive(t *testing.T) *fakeArchive {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "a@example", quick)
	require.NoError(t, err)
	f := &fakeArchive{files: make(map[string][]byte), key: key}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		b, ok := f.files[r.URL.Path]
		f.mu.Unlock()
		f.served.Add(1)
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(f.server.Close)
	f.archive = &archive{release: "r", arch: "amd64", pause: 10 * time.Millisecond, silence: 10 * time.Second,
		mirror:  func() (string, error) { return f.server.URL, nil },
		keyring: func() (openpgp.EntityList, error) { return openpgp.EntityList{key}, nil }}
	return f
}

// publish makes a release of those packages.
func (f *fakeArchive) publish(t *testing.T, version string, debs map[string][]byte) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var index, packed, signed bytes.Buffer
	for name, deb := range debs {
		file := "pool/" + name + "_" + version
		f.files["/"+file] = deb
		fmt.Fprintf(&index, "Package: %s\nVersion: %s\nFilename: %s\nSHA256: %x\nEssential: no\n\n", name, version, file, sha256.Sum256(deb))
	}
	z := gzip.NewWriter(&packed)
	_, err := z.Write(index.Bytes())
	require.NoError(t, err)
	require.NoError(t, z.Close())
	sum := sha256.Sum256(packed.Bytes())
	f.files[fmt.Sprintf("/dists/r/main/binary-amd64/by-hash/SHA256/%x", sum)] = packed.Bytes()
	w, err := clearsign.Encode(&signed, f.key.PrivateKey, nil)
	require.NoError(t, err)
	fmt.Fprintf(w, "Suite: r\nSHA256:\n %x %d main/binary-amd64/Packages.gz\n", sum, packed.Len())
	require.NoError(t, w.Close())
	f.files["/dists/r/InRelease"] = signed.Bytes()
}

// expire makes the index in the cache a day old.
func expire(t *testing.T, folder string) {
	t.Helper()
	old := time.Now().Add(-2 * fresh)
	require.NoError(t, os.Chtimes(filepath.Join(folder, "debian/r-amd64/index"), old, old))
}

func TestUnpackOnceForAll(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", map[string][]byte{"a": makeDeb(t, ".xz", file{"./usr/share/a", "one", 0o644})})
	var wg sync.WaitGroup
	dirs := make([]string, 8)
	for i := range dirs {
		wg.Go(func() {
			dir, err := f.make(t.Context(), folder, tree, []string{"a"})
			if err != nil {
				t.Error(err)
			}
			dirs[i] = dir
		})
	}
	wg.Wait()
	require.EqualValues(t, 3, f.served.Load(), "release, index, package: each once")
	for _, d := range dirs {
		require.Equal(t, dirs[0], d)
	}
	b, err := os.ReadFile(filepath.Join(dirs[0], "usr/share/a"))
	require.NoError(t, err)
	require.Equal(t, "one", string(b))

	// A newer version is another folder; the old one stays for processes that use it.
	f.publish(t, "2", map[string][]byte{"a": makeDeb(t, ".xz", file{"./usr/share/a", "two", 0o644})})
	same, err := f.make(t.Context(), folder, tree, []string{"a", "a"})
	require.NoError(t, err)
	require.Equal(t, dirs[0], same, "the index is fresh")
	expire(t, folder)
	newer, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	require.NotEqual(t, dirs[0], newer)
	require.FileExists(t, filepath.Join(dirs[0], "usr/share/a"))

	// Without a network the cache serves on.
	f.server.Close()
	expire(t, folder)
	again, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	require.Equal(t, newer, again)
}

func TestWhatIsNotSignedIsRefused(t *testing.T) {
	deb := makeDeb(t, "", file{"./a", "one", 0o644})
	for name, spoil := range map[string]func(f *fakeArchive){
		"another key": func(f *fakeArchive) {
			other, err := openpgp.NewEntity("other", "", "s@example", quick)
			require.NoError(t, err)
			f.keyring = func() (openpgp.EntityList, error) { return openpgp.EntityList{other}, nil }
		},
		"no signature": func(f *fakeArchive) { f.files["/dists/r/InRelease"] = []byte("Suite: r\n") },
		"another release": func(f *fakeArchive) {
			f.files["/dists/r/InRelease"] = bytes.Replace(f.files["/dists/r/InRelease"], []byte("Suite: r"), []byte("Suite: s"), 1)
		},
		"another package": func(f *fakeArchive) { f.files["/pool/a_1"] = append(bytes.Clone(deb), 0) },
		"another index": func(f *fakeArchive) {
			for name := range f.files {
				if strings.Contains(name, "by-hash") {
					f.files[name] = []byte("x")
				}
			}
		},
	} {
		f, folder := newArchive(t), t.TempDir()
		f.publish(t, "1", map[string][]byte{"a": deb})
		spoil(f)
		_, err := f.make(t.Context(), folder, tree, []string{"a"})
		require.ErrorIs(t, err, ErrUntrusted, name)
		made, _ := filepath.Glob(filepath.Join(folder, "debian/r-amd64/tree-*[0-9a-f]"))
		require.Empty(t, made, "%s: nothing is left that could be taken for whole", name)
	}
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", map[string][]byte{"a": deb})
	_, err := f.make(t.Context(), folder, tree, []string{"b"})
	require.ErrorIs(t, err, ErrNoPackage)
}

func TestContextEndsAWait(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", map[string][]byte{"a": makeDeb(t, "", file{"./a", "one", 0o644})})
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "debian/r-amd64"), 0o755))
	unlock, err := cache.Lock(t.Context(), filepath.Join(folder, "debian/r-amd64/index.lock"))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = f.make(ctx, folder, tree, []string{"a"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	unlock()

	// What an interrupted run left is neither used nor in the way.
	dir, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+".part"))
	require.NoError(t, os.Remove(filepath.Join(dir+".part", "a")))
	again, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.FileExists(t, filepath.Join(dir, "a"))
}

func TestRootIsFitForAGuest(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", map[string][]byte{"base": makeDeb(t, "",
		file{"./usr/share/base-passwd/passwd.master", "root:*:0:0:root:/root:/bin/bash\n", 0o644}, file{"./var/run/", "", 0o755},
		file{"./usr/bin/mawk", "awk", 0o755}, file{"./usr/share/ca-certificates/mozilla/one.crt", "CERTIFICATE\n", 0o644})})
	dir, err := f.make(t.Context(), folder, root, []string{"base"})
	require.NoError(t, err)
	for name, want := range map[string]string{
		"etc/passwd":                        "root:*:0:0",
		"etc/hosts":                         "localhost",
		"etc/ssl/certs/ca-certificates.crt": "CERTIFICATE",
		"var/lib/dpkg/status":               "Status: install ok installed\nPackage: base\n",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, string(b), want, name)
	}
	for name, want := range map[string]string{"usr/bin/awk": "/etc/alternatives/awk", "etc/alternatives/awk": "/usr/bin/mawk", "var/run": "/run",
		"bin": "usr/bin", "lib64": "usr/lib64"} {
		to, err := os.Readlink(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, to, name)
	}
}
