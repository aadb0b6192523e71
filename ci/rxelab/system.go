package main

import (
	"bufio"
	"context"
	"os"
	"strings"

	"github.com/goverbs/goverbs/ci/internal/debian"
)

// release is a Debian release: what its guests boot and run.
type release struct{ name, kernel string }

var releases = map[string]release{"12": {"bookworm", "6.1"}, "13": {"trixie", "6.12"}}

// system answers the folder with the system of a Debian release, or nothing if
// guests have the host's own: when no release is asked for, or the host's.
func system(ctx context.Context, cacheDir, version string) (string, error) {
	if version == "" || version == hostDebian("/etc/os-release") {
		return "", nil
	}
	return debian.Root(ctx, cacheDir, releases[version].name, "amd64", debian.Userland...)
}

// hostDebian is the version of Debian that an os-release file tells of.
func hostDebian(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	values := make(map[string]string)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		k, v, _ := strings.Cut(lines.Text(), "=")
		values[k] = strings.Trim(v, `"`)
	}
	if values["ID"] != "debian" {
		return ""
	}
	return values["VERSION_ID"]
}
