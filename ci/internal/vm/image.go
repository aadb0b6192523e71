package vm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/ci/internal/initramfs"
	"github.com/goverbs/goverbs/ci/internal/kernel"
	"github.com/goverbs/goverbs/ci/internal/proto"
)

// modules are all that the guest uses, loaded before its root is mounted:
// devices of the machine, rxe and what it asks the crypto layer for, links and
// queueing disciplines of the topologies.
var modules = []string{
	"virtio_pci", "virtio_console", "virtio_net", "virtio_rng?", "9pnet_virtio", "9p", "overlay",
	"crc32_generic", "crc32c_generic?", "rdma_rxe", "ib_uverbs", "rdma_ucm",
	"veth", "ifb", "sch_netem", "sch_tbf", "sch_ingress", "act_mirred", "cls_matchall",
	"8021q", "macvlan",
}

// baseImage is the part of the initramfs that depends on the kernel and on this
// program alone; it is made once and kept beside the kernel.
func baseImage(t *kernel.Tree, initProgram []byte) (string, error) {
	h := sha256.New()
	h.Write(initProgram)
	fmt.Fprint(h, modules)
	path := filepath.Join(t.Cache, fmt.Sprintf("initramfs-%x", h.Sum(nil)[:8]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	mods, err := t.Load(modules)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	w := initramfs.NewWriter(&buf)
	for _, d := range []string{"dev", "proc", "sys", "low", "up", "root", "modules"} {
		w.Dir(d)
	}
	w.File("init", 0o755, initProgram)
	for i, m := range mods {
		// The number keeps the order in which they can be inserted.
		w.File(fmt.Sprintf("modules/%03d-%s.ko", i, m.Name), 0o644, m.Data)
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(filepath.Join(t.Cache, "initramfs-*"))
	for _, f := range old {
		os.Remove(f)
	}
	return path, writeAtomic(path, buf.Bytes())
}

// jobImage is a second archive behind the base.
func jobImage(job proto.Job) ([]byte, error) {
	b, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := initramfs.NewWriter(&buf)
	w.File("job.json", 0o644, b)
	err = w.Close()
	return buf.Bytes(), err
}

func writeAtomic(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(b); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
