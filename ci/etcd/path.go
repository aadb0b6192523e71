package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// Path returns the program: $ETCD, or that of the host's release of Debian, or else of Debian 13.
func Path(ctx context.Context) (string, error) {
	if p := os.Getenv("ETCD"); p != "" {
		return p, nil
	}
	_, release := debian.Host()
	if release == "" {
		release = "trixie"
	}
	folder, err := cache.Dir()
	if err != nil {
		return "", err
	}
	tree, err := debian.Unpack(ctx, folder, release, runtime.GOARCH, "etcd-server")
	if err != nil {
		return "", fmt.Errorf("etcd: %w", err)
	}
	return filepath.Join(tree, "usr", "bin", "etcd"), nil
}
