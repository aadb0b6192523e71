package debian

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spoil has the archive answer requests for paths that have this in them otherwise, as
// long as the function says that it has done so.
func (f *fakeArchive) spoil(part string, otherwise func(w http.ResponseWriter, r *http.Request) bool) {
	inner := f.server.Config.Handler
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, part) || !otherwise(w, r) {
			inner.ServeHTTP(w, r)
		}
	})
}

func packagesAB(t *testing.T, text string) map[string][]byte {
	return map[string][]byte{"a": makeDeb(t, "", file{"./a", text, 0o644}), "b": makeDeb(t, "", file{"./b", text, 0o644})}
}

// The archive has removed a package for a newer one since the index in the cache was
// fetched, which is fresh still.
func TestPackageThatHasGone(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", packagesAB(t, "one"))
	_, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	clear(f.files)
	f.publish(t, "2", packagesAB(t, "two"))
	dir, err := f.make(t.Context(), folder, tree, []string{"b"})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "b"))
	require.NoError(t, err)
	require.Equal(t, "two", string(text))

	served := f.served.Load()
	delete(f.files, "/pool/a_2")
	_, err = f.make(t.Context(), folder, tree, []string{"a"})
	require.ErrorIs(t, err, errMissing, "of the newest release too")
	require.EqualValues(t, 2, f.served.Load()-served, "the package, and whether there is another release")
}

// Another run has taken away an index for the next one.
func TestIndexThatHasGone(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", packagesAB(t, "one"))
	base := f.base(folder)
	require.NoError(t, os.MkdirAll(base, 0o755))
	var used []string
	require.NoError(t, f.withIndex(t.Context(), base, func(ix index) error {
		if used = append(used, ix.id); len(used) == 1 {
			f.publish(t, "2", packagesAB(t, "two"))
			expire(t, folder)
			_, err := f.index(t.Context(), base, "")
			require.NoError(t, err)
		}
		_, err := ix.read()
		return err
	}))
	require.Len(t, used, 2)
	require.NotEqual(t, used[0], used[1])
}

// A mirror that is being updated has the new release before its index, or one of its
// servers has.
func TestReleaseBeforeItsIndex(t *testing.T) {
	f, folder := newArchive(t), t.TempDir()
	f.publish(t, "1", packagesAB(t, "one"))
	var asked atomic.Int32
	f.spoil("by-hash", func(w http.ResponseWriter, r *http.Request) bool {
		missing := asked.Add(1) < tries
		if missing {
			http.NotFound(w, r)
		}
		return missing
	})
	_, err := f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err)
	require.EqualValues(t, tries, asked.Load())

	asked.Store(-100)
	expire(t, folder)
	f.publish(t, "2", packagesAB(t, "two"))
	_, err = f.make(t.Context(), folder, tree, []string{"a"})
	require.NoError(t, err, "the index before serves")
	_, err = f.make(t.Context(), t.TempDir(), tree, []string{"a"})
	require.ErrorIs(t, err, errMissing)
}

// A server that fails, breaks off or says nothing is asked again.
func TestFailuresPass(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
		"busy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(make([]byte, 500))
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"falls silent": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(make([]byte, 500))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newArchive(t)
			f.silence = 200 * time.Millisecond
			f.publish(t, "1", packagesAB(t, "one"))
			var asked atomic.Int32
			f.spoil("pool", func(w http.ResponseWriter, r *http.Request) bool {
				failing := asked.Add(1) < tries
				if failing {
					fail(w, r)
				}
				return failing
			})
			dir, err := f.make(t.Context(), t.TempDir(), tree, []string{"a"})
			require.NoError(t, err)
			require.FileExists(t, filepath.Join(dir, "a"))
			require.EqualValues(t, tries, asked.Load())
			asked.Store(-100)
			_, err = f.make(t.Context(), t.TempDir(), tree, []string{"a"})
			require.Error(t, err)
			require.EqualValues(t, tries-100, asked.Load())
		})
	}
}
