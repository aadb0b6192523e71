package netpath

import (
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// class is the folder of /sys that has one for each RDMA device. A GID table has a file for each of
// up to a thousand entries: a folder is opened once for all of its files that are read one after
// the other, and each of these takes three system calls, of which os.ReadFile makes ten.
type class struct {
	fs.FS
	dir    string
	folder string // that is open, unless fd is -1
	fd     int
	buf    [4096]byte // as much as a file of /sys can have
}

func infiniband(dir string) *class { return &class{FS: os.DirFS(dir), dir: dir, fd: -1} }

func (c *class) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
	c.fd = -1
}

// ReadFile is that of [fs.ReadFileFS].
func (c *class) ReadFile(name string) ([]byte, error) {
	folder, file := path.Split(name)
	fail := func(op string, err error) ([]byte, error) { return nil, &fs.PathError{Op: op, Path: name, Err: err} }
	if c.fd < 0 || folder != c.folder {
		c.close()
		fd, err := unix.Open(path.Join(c.dir, folder), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fail("open", err)
		}
		c.folder, c.fd = folder, fd
	}
	fd, err := unix.Openat(c.fd, file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open", err)
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, c.buf[:])
	if err != nil {
		return fail("read", err)
	}
	return append([]byte(nil), c.buf[:n]...), nil
}
