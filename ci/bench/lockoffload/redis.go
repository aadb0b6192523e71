package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/internal/testproc"
	"github.com/goverbs/goverbs/lockoffload"
)

// redisLock is lock and unlock without contention, beside a lock in a Redis
// server at the other end of the same wire: SET NX PX, and a script that deletes
// the key if its value is still ours.
func redisLock(r *rig.Once[*chainRig]) harness.Benchmark {
	server := sync.OnceValues(startRedis)
	b := harness.Compare(harness.Figure{Name: "redis_lock", Unit: "us"}, nil,
		r.Pass(func(r *chainRig, ctx context.Context) (float64, error) {
			return rig.Timed(chainBlock, func() error {
				h, _, err := r.client.Lock(ctx, 0, lockoffload.LockOptions{})
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			})
		}),
		harness.Side{Name: "Redis, SET NX PX and script, over TCP", Run: harness.One(func(ctx context.Context) (float64, error) {
			conn, err := server()
			if err != nil {
				return 0, err
			}
			return rig.Timed(chainBlock, func() error { return lockAndUnlock(ctx, conn) })
		})})
	b.Also = instructions
	return b
}

// startRedis returns a connection to a server that ends with this process.
func startRedis() (*redis.Conn, error) {
	c, s, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	port := rig.NextPort()
	cmd, err := rig.Redis(s.Addr.String(), port)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if _, err := testproc.Start(cmd); err != nil {
		return nil, err
	}
	// From the first endpoint's address, or it would go by the loopback device.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.Addr.AsSlice()}}
	client := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(s.Addr.String(), port), MaxRetries: -1, DisableIdentity: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		}})
	// The client would log each refused connection until the server listens.
	for range 100 {
		var probe net.Conn
		if probe, err = d.Dial("tcp", client.Options().Addr); err == nil {
			probe.Close()
			return client.Conn(), nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

// redisUnlock is sent by its hash once the server has it.
var redisUnlock = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)

func lockAndUnlock(ctx context.Context, c *redis.Conn) error {
	ok, err := c.SetNX(ctx, "lock", "owner-1", 30*time.Second).Result()
	switch {
	case err != nil:
		return fmt.Errorf("redis: SET: %w", err)
	case !ok:
		return errors.New("redis: SET: the lock is held")
	}
	n, err := redisUnlock.Run(ctx, c, []string{"lock"}, "owner-1").Int()
	switch {
	case err != nil:
		return fmt.Errorf("redis: unlock: %w", err)
	case n != 1:
		return errors.New("redis: unlock: the lock was another's")
	}
	return nil
}
