package main

import (
	"context"

	"github.com/goverbs/goverbs/ci/internal/debian"
)

// release is a Debian release: what its guests boot and run.
type release struct{ name, kernel string }

var releases = map[string]release{"12": {"bookworm", "6.1"}, "13": {"trixie", "6.12"}}

// system returns the folder with the system of a Debian release, or nothing if
// guests have the host's own: when no release is asked for, or the host's.
func system(ctx context.Context, cacheDir, version string) (string, error) {
	if host, _ := debian.Host(); version == "" || version == host {
		return "", nil
	}
	return debian.Root(ctx, cacheDir, releases[version].name, "amd64", debian.Userland...)
}
