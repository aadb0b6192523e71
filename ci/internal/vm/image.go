package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/kernel"
)

// modules are all that the guest uses, loaded before its root is mounted:
// devices of the machine, rxe and what it asks the crypto layer for, links and
// queueing disciplines of the topologies.
var modules = []string{
	"virtio_pci", "virtio_console", "virtio_net", "virtio_rng?", "9pnet_virtio", "9p", "overlay",
	"crc32_generic?", "crc32c_generic?", "rdma_rxe", "ib_uverbs", "rdma_ucm",
	"veth", "ifb", "sch_netem", "sch_tbf", "sch_ingress", "act_mirred", "cls_matchall",
	"8021q", "macvlan",
}

// unusedFor is how long an image of another program stays.
const unusedFor = 24 * time.Hour

// image is the initramfs: this program as /init, and the modules. It depends on
// the kernel and on this program alone, is made once and kept beside what else
// is derived from the kernel.
func image(ctx context.Context, t *kernel.Tree, initProgram []byte) (string, error) {
	h := sha256.New()
	h.Write(initProgram)
	fmt.Fprint(h, t.Release, modules)
	path := filepath.Join(t.Cache, fmt.Sprintf("initramfs-%x", h.Sum(nil)[:8]))
	unlock, err := cache.Lock(ctx, filepath.Join(t.Cache, "initramfs.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return path, nil
	}
	// Those of other checkouts may be in use; what was not used for long goes.
	old, _ := filepath.Glob(filepath.Join(t.Cache, "initramfs-*"))
	for _, f := range old {
		if st, err := os.Stat(f); err == nil && now.Sub(st.ModTime()) > unusedFor {
			os.Remove(f)
		}
	}
	b, err := archive(t, initProgram)
	if err != nil {
		return "", err
	}
	return path, cache.WriteFile(path, b)
}

func archive(t *kernel.Tree, initProgram []byte) ([]byte, error) {
	mods, err := t.Load(modules)
	if err != nil {
		return nil, err
	}
	var records []cpio.Record
	for _, d := range []string{"dev", "proc", "sys", "low", "up", "out", "root", "modules"} {
		records = append(records, cpio.Directory(d, 0o755))
	}
	records = append(records, cpio.StaticFile("init", string(initProgram), 0o755))
	for i, m := range mods {
		// The number keeps the order in which they can be inserted.
		records = append(records, cpio.StaticFile(fmt.Sprintf("modules/%03d-%s.ko", i, m.Name), string(m.Data), 0o644))
	}
	var buf bytes.Buffer
	w := cpio.Newc.Writer(&buf)
	if err := cpio.WriteRecords(w, records); err != nil {
		return nil, err
	}
	err = cpio.WriteTrailer(w)
	return buf.Bytes(), err
}
