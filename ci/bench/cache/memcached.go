package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
)

// memcached is Debian's, with as many threads as there are CPUs, and a client.
type memcached struct {
	daemon
	client *tcpClient
}

func newMemcached() (*memcached, error) {
	_, far, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	port := rig.NextPort()
	at := net.JoinHostPort(far.Addr.String(), port)
	return startMemcached(at, daemon{at: at}.dial, "-l", far.Addr.String(), "-p", port)
}

// startMemcached starts the daemon, connects a client by dial and stores the values that are read.
func startMemcached(at string, dial func() (*tcpClient, error), args ...string) (*memcached, error) {
	program, err := exec.LookPath("memcached")
	if err != nil {
		return nil, err
	}
	m := &memcached{}
	if m.daemon, err = start(at, exec.Command(program, append(args, "-U", "0", "-u", "root", "-m", "64", "-t", strconv.Itoa(runtime.NumCPU()))...)); err != nil {
		return nil, err
	}
	if m.client, err = soon(dial); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if err := m.client.set(key(size), make([]byte, size)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// gets returns the median time of a GET in microseconds.
func (m *memcached) gets(size int) (float64, error) {
	return m.client.gets(size)
}

// gets returns the same of any program that speaks memcached's protocol.
func (c *tcpClient) gets(size int) (float64, error) { return timed(c.get, size) }

// timed returns the median time of a GET in microseconds.
func timed(get func(key, dst []byte) (int, error), size int) (float64, error) {
	k, dst := key(size), make([]byte, size)
	return rig.Timed(getBlock, func() error {
		n, err := get(k, dst)
		if err == nil && n != size {
			err = fmt.Errorf("a value of %d bytes", n)
		}
		return err
	})
}

// tcpClient is the least that a program does: one write and as few reads as there can
// be, which block. It goes past Go's network poller, which would only add to it.
type tcpClient struct {
	file    *os.File
	fd      int
	out, in []byte
}

func (d daemon) dial() (*tcpClient, error) {
	from, err := dialer()
	if err != nil {
		return nil, err
	}
	return dialTCP(from, "tcp", d.at)
}

func dialTCP(d *net.Dialer, network, at string) (*tcpClient, error) {
	conn, err := d.Dial(network, at)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f, err := conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	return &tcpClient{file: f, fd: int(f.Fd()), in: make([]byte, 32<<10)}, nil // Fd makes it block
}

func (c *tcpClient) write() error {
	for out := c.out; len(out) > 0; {
		n, err := syscall.Write(c.fd, out)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		out = out[max(n, 0):]
	}
	return nil
}

func (c *tcpClient) read(into []byte) (int, error) {
	for {
		n, err := syscall.Read(c.fd, into)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && n == 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, err
		}
	}
}

// get returns the length of a value, which it copies to dst.
func (c *tcpClient) get(key, dst []byte) (int, error) {
	c.out = append(append(append(c.out[:0], "get "...), key...), "\r\n"...)
	return c.value("VALUE ", "\r\nEND\r\n", dst)
}

// value sends what is to be sent and takes the response: a line that begins with head, and ends in
// the value's length, the value, and tail.
func (c *tcpClient) value(head, tail string, dst []byte) (int, error) {
	if err := c.write(); err != nil {
		return 0, err
	}
	for have, begin, length := 0, 0, 0; ; {
		n, err := c.read(c.in[have:])
		if err != nil {
			return 0, err
		}
		have += n
		if begin == 0 {
			line, _, ok := bytes.Cut(c.in[:have], []byte("\r\n"))
			if !ok {
				continue
			}
			if !bytes.HasPrefix(line, []byte(head)) {
				return 0, fmt.Errorf("%q for a value", line)
			}
			if length, err = decimal(line[max(len(head), bytes.LastIndexByte(line, ' ')+1):]); err != nil {
				return 0, err
			}
			begin = len(line) + 2
			if begin+length+len(tail) > len(c.in) {
				return 0, fmt.Errorf("a value of %d bytes", length)
			}
		}
		if have == begin+length+len(tail) {
			return copy(dst, c.in[begin:begin+length]), nil
		}
	}
}

func decimal(b []byte) (n int, err error) {
	for _, d := range b {
		if d < '0' || d > '9' || n > 1<<30 {
			return 0, fmt.Errorf("a length of %q", b)
		}
		n = 10*n + int(d-'0')
	}
	return n, nil
}

func (c *tcpClient) set(key, value []byte) error {
	c.out = append(append(append(c.out[:0], "set "...), key...), " 0 0 "...)
	c.out = append(strconv.AppendInt(c.out, int64(len(value)), 10), "\r\n"...)
	c.out = append(append(c.out, value...), "\r\n"...)
	if err := c.write(); err != nil {
		return err
	}
	const stored = "STORED\r\n"
	for have := 0; have < len(stored); {
		n, err := c.read(c.in[have:])
		if err != nil {
			return err
		}
		if have += n; c.in[0] != 'S' {
			return fmt.Errorf("memcached: set %s: %q", key, c.in[:have])
		}
	}
	return nil
}
