package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/lockoffload"
)

// redisLock is lock and unlock without contention, beside a lock in a Redis
// server at the other end of the same wire: SET NX PX, and a script that deletes
// the key if its value is still ours. Without redis-server there is no such row.
func redisLock(rig func() (*lockRig, error)) []benchmark {
	program, err := redisProgram()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: redis_lock left out:", err)
		return nil
	}
	server := sync.OnceValues(func() (*redis, error) { return startRedis(program) })
	return []benchmark{{name: "redis_lock", unit: "us", baseline: "Redis, SET NX PX and script, over TCP",
		ours: onRig(rig, func(r *lockRig, ctx context.Context) (float64, error) {
			return timed(lockBlock, func() error {
				h, _, err := r.client.Acquire(ctx, 0, lockoffload.LockOptions{})
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			})
		}),
		base: func(context.Context) (float64, error) {
			r, err := server()
			if err != nil {
				return 0, err
			}
			return timed(lockBlock, r.lockAndUnlock)
		}}}
}

// redis is a connection to a server that ends with this process.
type redis struct {
	conn net.Conn
	in   *bufio.Reader
}

// redisProgram finds the server. Debian's redis-tools has it under the name of a
// tool that is the same program, which goes by the name that it is called by.
func redisProgram() (string, error) {
	if p, err := exec.LookPath("redis-server"); err == nil {
		return p, nil
	}
	return exec.LookPath("redis-check-rdb")
}

func startRedis(program string) (*redis, error) {
	c, s, err := endpoints()
	if err != nil {
		return nil, err
	}
	port := nextPort()
	cmd := exec.Command(program, "--bind", s.Addr.String(), "--port", port, "--save", "", "--appendonly", "no", "--protected-mode", "no", "--loglevel", "warning")
	cmd.Args[0] = "redis-server"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// From the first endpoint's address, or it would go by the loopback device.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.Addr.AsSlice()}}
	for range 100 {
		var conn net.Conn
		if conn, err = d.Dial("tcp", net.JoinHostPort(s.Addr.String(), port)); err == nil {
			return &redis{conn, bufio.NewReader(conn)}, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

// command sends one command and answers the first line of the reply.
func (r *redis) command(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := r.conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	line, err := r.in.ReadString('\n')
	return strings.TrimSpace(line), err
}

const redisUnlock = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

func (r *redis) lockAndUnlock() error {
	got, err := r.command("SET", "lock", "owner-1", "NX", "PX", "30000")
	if err == nil && got != "+OK" {
		err = errors.New("redis: SET answered " + got)
	}
	if err != nil {
		return err
	}
	got, err = r.command("EVAL", redisUnlock, "1", "lock", "owner-1")
	if err == nil && got != ":1" {
		err = errors.New("redis: EVAL answered " + got)
	}
	return err
}
