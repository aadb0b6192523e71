package accept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// ListenUnix listens at a unix socket. A socket that a killed process left behind is
// replaced. One at which another process listens, and a file that is no socket, are not.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if st, serr := os.Lstat(path); !errors.Is(err, syscall.EADDRINUSE) || serr != nil || st.Mode().Type() != os.ModeSocket {
		return l, err
	}
	var d net.Dialer
	if c, derr := d.DialContext(ctx, "unix", path); derr == nil {
		return nil, errors.Join(err, c.Close())
	} else if !errors.Is(derr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("a socket that was left behind: %w", err)
	}
	return lc.Listen(ctx, "unix", path)
}
