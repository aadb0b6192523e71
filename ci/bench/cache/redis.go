package cache

import (
	"fmt"
	"net"
	"strconv"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
)

// redis is Debian's, and a client that does as little as memcached's.
type redis struct {
	daemon
	client *tcpClient
}

const overRedis = "Redis over TCP"

func newRedis() (*redis, error) {
	_, far, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	port := rig.NextPort()
	cmd, err := rig.Redis(far.Addr.String(), port)
	if err != nil {
		return nil, err
	}
	r := &redis{}
	if r.daemon, err = start(net.JoinHostPort(far.Addr.String(), port), cmd); err != nil {
		return nil, err
	}
	if r.client, err = soon(r.dial); err != nil {
		return nil, err
	}
	for _, size := range sizes {
		if err := r.set(key(size), make([]byte, size)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// gets returns the median time of a GET in microseconds.
func (r *redis) gets(size int) (float64, error) { return timed(r.get, size) }

// command begins a command of so many words.
func (r *redis) command(words ...[]byte) {
	c := r.client
	c.out = append(strconv.AppendInt(append(c.out[:0], '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(w)), 10), "\r\n"...)
		c.out = append(append(c.out, w...), "\r\n"...)
	}
}

func (r *redis) get(key, dst []byte) (int, error) {
	r.command([]byte("GET"), key)
	return r.client.value("$", "\r\n", dst)
}

func (r *redis) set(key, value []byte) error {
	r.command([]byte("SET"), key, value)
	if err := r.client.write(); err != nil {
		return err
	}
	const stored = "+OK\r\n"
	for have := 0; have < len(stored); {
		n, err := r.client.read(r.client.in[have:])
		if err != nil {
			return err
		}
		if have += n; r.client.in[0] != '+' {
			return fmt.Errorf("SET %s: %q", key, r.client.in[:have])
		}
	}
	return nil
}
