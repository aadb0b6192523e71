// Package layering tests which packages may import which (ARCHITECTURE.md).
package layering

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/goverbs/goverbs/"

// below are the folders that a folder's packages may import, beside their own and
// the standard library. A folder below another one that is named itself is a room of
// its own. What is not named here may import all.
var below = map[string][]string{
	"cgo":                  {},
	"histogram":            {},
	"internal":             {"histogram"},
	"internal/cachestatus": {"cache/server", "cache/gateway", "internal"},
	"verbs":                {"cgo", "verbs/netpath", "internal"},
	"verbs/netpath":        {"internal"},
	"verbs/rdmacm":         {"verbs", "verbs/netpath", "cgo", "internal"},
	"verbs/stream":         {"verbs", "verbs/rdmacm", "internal"},
	"verbs/internal/rig":   {"verbs", "verbs/rdmacm", "ci", "internal"}, // for tests alone
	"dc":                   {"verbs", "verbs/netpath", "verbs/rdmacm", "internal", "dc/internal/wire", "dc/internal/session", "dc/internal/dci"},
	"dc/internal/wire":     {},
	// The machines: neither knows the other, nor verbs.
	"dc/internal/session":  {"dc/internal/wire", "internal"},
	"dc/internal/dci":      {"internal"},
	"srd":                  {"srd/internal/wire", "srd/internal/engine", "srd/internal/offload", "srd/internal/session", "srd/internal/handles", "verbs", "verbs/netpath", "verbs/rdmacm", "internal"},
	"srd/internal/wire":    {},
	"srd/internal/handles": {},
	"srd/internal/session": {"srd/internal/wire"},
	// Its simulation has address handles.
	"srd/internal/engine": {"srd/internal/wire", "srd/internal/session", "srd/internal/handles", "internal"},
	// It speaks of messages, services and statuses in the engine's terms.
	"srd/internal/offload": {"srd/internal/wire", "srd/internal/session", "srd/internal/engine", "internal"},
	"lockoffload": {"verbs", "verbs/netpath", "verbs/rdmacm", "internal", "lockoffload/internal/wire", "lockoffload/internal/memory",
		"lockoffload/internal/machine"},
	"lockoffload/internal/wire":    {},
	"lockoffload/internal/memory":  {"internal"},
	"lockoffload/internal/broker":  {},
	"lockoffload/internal/machine": {"lockoffload/internal/wire", "lockoffload/internal/memory", "lockoffload/internal/broker", "internal"},
	"pacer":                        {"histogram", "verbs", "verbs/netpath", "verbs/rdmacm", "internal"},
	"cache":                        {"histogram", "verbs", "verbs/netpath", "verbs/rdmacm", "dc", "srd", "lockoffload", "pacer", "internal", "cache/kv", "cache/internal", "cache/internal/driver"},
	"cache/server":                 {"histogram", "verbs", "dc", "lockoffload", "internal", "cache/kv", "cache/internal", "cache/internal/driver"},
	"cache/gateway":                {"cache/kv", "cache/internal", "internal"}, // over any store
	"cache/cluster":                {"dc", "cache", "cache/server", "cache/kv", "cache/internal", "internal"},
	"cache/kv":                     {},
	"cache/internal":               {"histogram", "cache/kv", "internal"},
	// What client and server share on the device.
	"cache/internal/driver":           {"cache/kv", "cache/internal", "verbs"},
	"cache/internal/driver/simulated": {"dc", "verbs"}, // for tests alone
}

// forTests are what tests of all rooms may import: helpers, and stand-ins below.
var forTests = []string{"ci", "cgo", "internal", "verbs", "verbs/internal/rig", "cache/internal/driver/simulated"}

// room is the folder of below that a package is in, or else its first one.
func room(pkg string) string {
	for folder := pkg; folder != "."; folder = path.Dir(folder) {
		if _, ok := below[folder]; ok {
			return folder
		}
	}
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// unsafeFiles are those outside of cgo that may import unsafe.
var unsafeFiles = []string{"verbs/view.go"}

// machine are the files of the systems' state machines, which import neither
// I/O nor clocks nor locks. A system of several packages has the driver that they share in
// internal/driver, where there are no machines.
var (
	machine = regexp.MustCompile(`^(dc|srd|lockoffload|pacer|cache|verbs/stream)/internal/`)
	driver  = regexp.MustCompile(`/internal/driver/`)
	impure  = []string{"context", "net", "os", "sync", "sync/atomic", "syscall", module + "verbs"}
	clock   = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|NewTimer|NewTicker|Tick)\b`)
)

type file struct {
	path    string // from the module's root, with slashes
	imports []string
}

func files(t *testing.T) []file {
	t.Helper()
	const root = "../.."
	var out []file
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "build" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		a, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := file{path: rel}
		for _, i := range a.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, name)
		}
		out = append(out, f)
		return nil
	}))
	require.Greater(t, len(out), 100)
	return out
}

func isMachine(file string) bool {
	return machine.MatchString(file) && !driver.MatchString(file)
}

// wrong says what is wrong with an import.
func wrong(file, name string) string {
	folder := room(path.Dir(file))
	test := strings.HasSuffix(file, "_test.go")
	switch {
	case isMachine(file) && !test && slices.Contains(impure, name):
		return "a state machine has no I/O, clock or lock"
	case name == "C" && folder != "cgo":
		return `import "C" is for cgo alone`
	case name == "unsafe" && folder != "cgo" && !slices.Contains(unsafeFiles, file) && !test:
		return "unsafe is for cgo, and for " + strings.Join(unsafeFiles, ", ")
	case !strings.HasPrefix(name, module):
		return ""
	}
	to := room(strings.TrimPrefix(name, module))
	allowed, ruled := below[folder]
	switch {
	case !ruled || to == folder || slices.Contains(allowed, to):
		return ""
	case test && folder == "verbs/netpath": // which stands without cgo, its tests too
		if to == "ci" {
			return ""
		}
	case test && folder == "cache" && to == "cache/server": // the client's tests have one
		return ""
	case test && slices.Contains(forTests, to):
		return ""
	}
	return folder + " stands below " + to + ", or beside it"
}

// Arrows point down.
func TestImports(t *testing.T) {
	for _, f := range files(t) {
		for _, i := range f.imports {
			if w := wrong(f.path, i); w != "" {
				t.Errorf("%s imports %s: %s", f.path, i, w)
			}
		}
		if isMachine(f.path) && !strings.HasSuffix(f.path, "_test.go") {
			source, err := os.ReadFile(filepath.Join("../..", f.path))
			require.NoError(t, err)
			if c := clock.Find(source); c != nil {
				t.Errorf("%s has %s: a state machine is told the time", f.path, c)
			}
		}
	}
}

// A program that imports a library gets nothing of the weight of Prometheus, etcd or gRPC, by way of
// others' packages either; and with the cache's client no server.
func TestLibrariesAreLight(t *testing.T) {
	heavy := regexp.MustCompile(`^(go\.etcd\.io|google\.golang\.org|github\.com/(etcd-io|coreos|grpc|prometheus))/|^` + module + `(cmd|cache/server|cache/gateway|cache/cluster)`)
	for _, name := range []string{"go.etcd.io/etcd/client/v3", "google.golang.org/grpc", "github.com/prometheus/client_golang/prometheus", module + "cache/server"} {
		require.Regexp(t, heavy, name)
	}
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "./verbs/stream", "./dc", "./srd", "./lockoffload", "./pacer", "./cache")
	c.Dir, c.Stderr = "../..", t.Output()
	out, err := c.Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/maypok86/otter/v2", "others' packages are in the list")
	require.Contains(t, deps, module+"lockoffload")
	for _, name := range deps {
		require.NotRegexp(t, heavy, name)
	}
}

// Each indirect dependency says what it is for.
func TestIndirect(t *testing.T) {
	for _, mod := range []string{"go.mod", "ci/bench/go.mod"} {
		text, err := os.ReadFile(filepath.Join("../..", mod))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "// indirect") {
				require.Contains(t, line, "// indirect; for ", mod)
			}
		}
	}
}

// What is wrong is seen.
func TestWrongImports(t *testing.T) {
	for path, name := range map[string]string{
		"verbs/a.go":                      module + "dc",
		"verbs/a_test.go":                 module + "dc",
		"dc/a.go":                         module + "lockoffload",
		"dc/b.go":                         module + "cgo",
		"lockoffload/a.go":                module + "ci/lab",
		"internal/turn/a.go":              module + "verbs",
		"cgo/a.go":                        module + "verbs",
		"verbs/b.go":                      "C",
		"verbs/c.go":                      "unsafe",
		"cmd/x/a.go":                      "C",
		"cache/server/server.go":          module + "ci/lab",
		"cache/server/a.go":               module + "cache",
		"cache/server/b.go":               module + "cache/cluster",
		"cache/gateway/a.go":              module + "cache/server",
		"cache/gateway/b.go":              module + "verbs",
		"cache/kv/a.go":                   module + "cache/internal/wire",
		"cache/internal/store/a.go":       module + "cache/internal/driver/link",
		"cache/internal/store/b.go":       "sync",
		"cache/internal/driver/link/a.go": module + "cache",
		"srd/internal/engine/a.go":        "net",
		"srd/internal/engine/b.go":        module + "srd",
		"srd/internal/engine/c.go":        module + "verbs/netpath",
		"srd/internal/wire/a.go":          module + "srd/internal/engine",
		"srd/internal/wire/b.go":          module + "internal/chanmutex",
		"srd/internal/wire/c.go":          "sync",
		"srd/a.go":                        module + "dc",

		"dc/internal/session/a.go":      module + "verbs",
		"dc/internal/session/b.go":      "context",
		"dc/internal/session/c.go":      module + "dc/internal/dci",
		"dc/internal/session/a_test.go": module + "dc",
		"dc/internal/dci/a.go":          module + "dc/internal/wire",
		"dc/internal/wire/a.go":         module + "dc/internal/session",
		"lockoffload/b.go":              module + "dc/internal/wire",

		"verbs/netpath/a.go":       module + "verbs",
		"verbs/netpath/a_test.go":  module + "verbs",
		"verbs/netpath/b.go":       module + "cgo",
		"verbs/netpath/b_test.go":  module + "cgo",
		"verbs/netpath/c.go":       "C",
		"internal/nldev/a.go":      module + "verbs/netpath",
		"verbs/d.go":               module + "verbs/rdmacm",
		"verbs/e.go":               module + "verbs/internal/rig",
		"verbs/internal/life/a.go": module + "verbs/stream",
		"verbs/b_test.go":          module + "verbs/stream",
		"verbs/rdmacm/a.go":        module + "verbs/stream",
		"verbs/rdmacm/b.go":        module + "verbs/internal/rig",
		"verbs/stream/a.go":        module + "cgo",
	} {
		require.NotEmpty(t, wrong(path, name), "%s imports %s", path, name)
	}
	for path, name := range map[string]string{
		"verbs/view.go":                   "unsafe",
		"verbs/a_test.go":                 module + "ci/lab",
		"dc/a.go":                         module + "verbs",
		"srd/a.go":                        module + "srd/internal/engine",
		"srd/b.go":                        module + "srd/internal/wire",
		"srd/internal/engine/a.go":        module + "srd/internal/wire",
		"cache/server/server.go":          module + "cache/internal/driver/link",
		"cache/internal/driver/link/a.go": module + "verbs",
		"cache/internal/driver/link/b.go": "context",
		"cache/a.go":                      module + "lockoffload",
		"cache/a_test.go":                 module + "cache/server",
		"cmd/x/a.go":                      module + "dc",

		"verbs/a.go":              module + "verbs/netpath",
		"verbs/netpath/a.go":      module + "internal/nldev",
		"verbs/netpath/a_test.go": module + "ci/lab",
		"dc/c.go":                 module + "verbs/netpath",
		"verbs/rdmacm/a.go":       module + "cgo",
		"verbs/rdmacm/b.go":       module + "verbs/internal/life",
		"verbs/stream/a.go":       module + "verbs/rdmacm",
		"verbs/stream/a_test.go":  module + "verbs/internal/rig",
		"dc/b.go":                 module + "verbs/rdmacm",
	} {
		require.Empty(t, wrong(path, name), "%s imports %s", path, name)
	}
}
