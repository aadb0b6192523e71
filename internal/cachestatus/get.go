package cachestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// maxStatus is how long a response may be, in bytes: that of a thousand tenants with hot keys.
const maxStatus = 16 << 20

// client follows no redirect: its target would be shown under the name of the server that was asked.
var client = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// Get returns the status of the daemon with this address for metrics.
func Get(ctx context.Context, at string) (s Status, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+Path, nil)
	if err != nil {
		return s, err
	}
	a, err := client.Do(q)
	if err != nil {
		return s, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s: %q: no status: rdmacached has it at its address for metrics, and a proxy has none", at, a.Status)
	}
	b, err := io.ReadAll(io.LimitReader(a.Body, maxStatus+1))
	switch {
	case err != nil:
		return s, fmt.Errorf("%s: %w", at, err)
	case len(b) > maxStatus:
		return s, fmt.Errorf("%s: its reply is longer than %d bytes", at, maxStatus)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("%s: its reply is no rdmacached's: %w", at, err)
	}
	if s.Listens == "" {
		return s, fmt.Errorf("%s: its reply is no rdmacached's: it does not say where it listens", at)
	}
	return s, nil
}

// GetCluster returns what the daemon knows of its cluster. It waits a second for that.
func GetCluster(ctx context.Context, at string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := Get(ctx, at)
	if err == nil && s.Cluster == nil {
		err = fmt.Errorf("%s: it is in no cluster", at)
	}
	return s.Cluster, err
}

// Settled waits until the daemon is one of so many members, and each has its share. It returns an error when the daemon's
// process has ended.
func Settled(ctx context.Context, at string, members int, ended <-chan error) error {
	for {
		begun := time.Now()
		c, err := GetCluster(ctx, at)
		if err == nil && c.State == "member" && len(c.Members) == members && c.Planned == 0 {
			return nil
		}
		select {
		case <-time.After(max(20*time.Millisecond, 10*time.Since(begun))): // most of the time is left to what the daemon serves
		case err := <-ended:
			return fmt.Errorf("%s has ended: %w", at, err)
		case <-ctx.Done():
			return fmt.Errorf("%s: no %d members with their shares: %+v, %w", at, members, c, errors.Join(err, ctx.Err()))
		}
	}
}
