package debian

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAreOrderedAsDpkgDoes(t *testing.T) {
	// Each is older than the next one.
	order := []string{"1.0~rc1", "1.0~rc1-1", "1.0", "1.0-1", "1.0-1+b1", "1.0-1+deb13u4", "1.0-1.1", "1.0-2", "1.0-10", "1.0a", "1.0+git1",
		"1.0.1", "1.9", "1.10", "6.12.94-1", "6.12.107-1", "1:0.1", "2:0"}
	for i, a := range order {
		for j, b := range order {
			switch c := compareVersions(a, b); {
			case i < j:
				require.Negative(t, c, "%s < %s", a, b)
			case i > j:
				require.Positive(t, c, "%s > %s", a, b)
			default:
				require.Zero(t, c, a)
			}
		}
	}
	require.Zero(t, compareVersions("1.0", "1.00"))
	require.Zero(t, compareVersions("0:1.0", "1.0"))
}

const someIndex = `Package: app
Version: 1
Depends: lib (>= 1.2), tool | other, virtual
Pre-Depends: loader:any
Filename: pool/app.deb
SHA256: aa

Package: lib
Version: 6.12.94-1
Filename: pool/lib-old.deb

Package: lib
Version: 6.12.107-1
Filename: pool/lib-new.deb

Package: loader
Version: 1
Description: two lines,
 Depends: nothing of the sort

Package: other
Version: 1

Package: gives-a
Version: 1
Priority: optional
Provides: virtual (= 1), more

Package: gives-b
Version: 1
Priority: required
Provides: virtual

Package: base
Version: 1
Essential: yes
`

func names(packages []*Package) string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestClosure(t *testing.T) {
	all, err := parsePackages(strings.NewReader(someIndex))
	require.NoError(t, err)
	require.Equal(t, "pool/lib-new.deb", all.byName["lib"].Filename, "the newest version")
	require.Equal(t, [][]string{{"lib"}, {"tool", "other"}, {"virtual"}, {"loader"}}, all.byName["app"].Depends)

	got, err := all.closure([]string{"app"})
	require.NoError(t, err)
	require.Equal(t, "app base gives-b lib loader other", names(got), "the first alternative that there is, the provider that most have")
	got, err = all.closure([]string{"app", "more"})
	require.NoError(t, err)
	require.Equal(t, "app base gives-a lib loader other", names(got), "what was asked for decides")
	got, err = all.named([]string{"app", "more"})
	require.NoError(t, err)
	require.Equal(t, "app gives-a", names(got), "no dependencies")

	_, err = all.closure([]string{"tool"})
	require.ErrorIs(t, err, ErrNoPackage)
	all, err = parsePackages(strings.NewReader("Package: a\nDepends: b | c\n"))
	require.NoError(t, err)
	_, err = all.closure([]string{"a"})
	require.ErrorIs(t, err, ErrNoPackage)
	require.ErrorContains(t, err, "b or c, which a depends on")
}

func TestIndexSum(t *testing.T) {
	const release = "Origin: Debian\nMD5Sum:\n 11 5 main/Packages.gz\nSHA256:\n 22 5 main/Packages.xz\n 33 5 main/Packages.gz\n"
	sum, err := indexSum(release, "main/Packages.gz")
	require.NoError(t, err)
	require.Equal(t, "33", sum)
	_, err = indexSum(release, "main/other.gz")
	require.Error(t, err)
}

func TestMirrorIsTheHosts(t *testing.T) {
	files := map[string]string{"/etc/apt/mirrors/debian.list": "https://archive.example/debian\n"}
	read := func(name string) ([]byte, error) {
		if f, ok := files[name]; ok {
			return []byte(f), nil
		}
		return nil, errors.New("no such file")
	}
	for sources, want := range map[string]string{
		"deb http://archive.example/debian bookworm main\n":                                     "http://archive.example/debian",
		"deb [signed-by=/k.gpg] https://mirror.example/debian/ trixie main\n":                   "https://mirror.example/debian",
		"Types: deb\n# a comment\nURIs: http://archive.example/debian\nSuites: bookworm\n":      "http://archive.example/debian",
		"URIs: http://archive.example/debian-security\n\nURIs: http://mirror.example/debian/\n": "http://mirror.example/debian",
		"Types: deb deb-src\nURIs: mirror+file:///etc/apt/mirrors/debian.list\n":                "https://archive.example/debian",
		"URIs: mirror+file:///etc/apt/mirrors/missing.list\n":                                   "",
		"deb https://packages.example/apt stable main\n":                                        "",
		"# deb http://archive.example/debian bookworm main\n":                                   "",
	} {
		require.Equal(t, want, findMirror(sources, read), sources)
	}
}
