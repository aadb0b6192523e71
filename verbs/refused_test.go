//go:build linux

package verbs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// refused reports whether the device lacks a feature; the refusal must say so
// with [verbs.ErrUnsupported]. On rxe of a kernel in the table of features, and on a
// simulated device, it must be what the table says of it; but for rxe [badRefusal] must
// have nothing against it.
func refused(t *testing.T, feature string, err error) bool {
	t.Helper()
	rows, terr := featureTable()
	require.NoError(t, terr)
	row, ok := rows[feature]
	require.True(t, ok, "the table has no feature %q", feature)
	want := ""
	if release := strings.Split(os.Getenv("LAB_KERNEL_RELEASE"), "."); len(release) > 1 {
		want = row.on[release[0]+"."+release[1]]
	}
	expected := want
	if strings.HasPrefix(os.Getenv("SIMHCA"), "mlx5") {
		expected, _, _ = strings.Cut(row.simulated, ";")
		require.Contains(t, []string{"runs", "refused"}, expected, "the table says nothing of %q on a simulated device", feature)
	}
	if expected != "" {
		require.Equal(t, expected == "refused", err != nil, "%s: the table says %s, the device %v", feature, expected, err)
	}
	if err == nil {
		return false
	}
	require.ErrorIs(t, err, verbs.ErrUnsupported)
	if want == "" {
		f, ferr := firstDevice()
		require.NoError(t, ferr)
		require.Empty(t, badRefusal(f, feature, err))
	}
	t.Logf("%s: %v", feature, err)
	return true
}

// firstDevice returns the features of the device that the tests run on.
var firstDevice = sync.OnceValues(func() (f verbs.Features, err error) {
	list, err := verbs.Devices()
	if err != nil {
		return f, err
	}
	for _, info := range list {
		if want := os.Getenv("RDMA_DEVICE"); want != "" && want != info.Name {
			continue
		}
		d, err := verbs.Open(info.Name, verbs.DeviceConfig{})
		if err != nil {
			return f, err
		}
		f, err = d.Features()
		return f, errors.Join(err, d.Close())
	}
	return f, verbs.ErrNoDevice
})

// told are the features that a device reports.
var told = map[string]func(verbs.Features) bool{
	"memory windows, type 1": func(f verbs.Features) bool { return f.Window1 },
	"memory windows, type 2": func(f verbs.Features) bool { return f.Window2 },
	"on-demand paging":       func(f verbs.Features) bool { return f.OnDemand },
	"timestamps":             func(f verbs.Features) bool { return f.TimestampMask != 0 },
	"moderation":             func(f verbs.Features) bool { return f.MaxModerate != 0 },
	"rate limit":             func(f verbs.Features) bool { return f.MaxRate != 0 },
	"DC target":              func(f verbs.Features) bool { return f.Mlx5 != nil },
	"DC initiator, streams":  func(f verbs.Features) bool { return f.Mlx5 != nil },
	"masked atomics, native": func(f verbs.Features) bool { return f.Mlx5 != nil },
	"device memory":          func(f verbs.Features) bool { return f.DeviceMemory != 0 },
	"EFA SRD":                func(f verbs.Features) bool { return f.EFA != nil },
	"sender of a datagram without route header": func(f verbs.Features) bool { return f.EFA != nil && f.EFA.Sender },
}

// badRefusal returns what is wrong with a refusal, or "": a device that reports
// a feature must not refuse it, and a refusal gives a reason: kernel or
// provider an errno for what they do not have, this package what is missing.
func badRefusal(f verbs.Features, feature string, err error) string {
	if has := told[feature]; has != nil && has(f) {
		return fmt.Sprintf("%s: the device tells that it has it, and refuses: %v", feature, err)
	}
	for _, lacks := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.ENOTTY, syscall.EPROTONOSUPPORT} {
		if errors.Is(err, lacks) {
			return ""
		}
	}
	var status verbs.WCStatus
	if errors.As(err, &status) { // a request that a device does not know
		return ""
	}
	var op *verbs.OpError
	if !errors.As(err, &op) || op.Detail == "" {
		return fmt.Sprintf("%s: refused without a reason: %v", feature, err)
	}
	return ""
}

func TestBadRefusal(t *testing.T) {
	op := func(err error, detail string) error {
		return &verbs.OpError{Op: "ask", Object: "rxe0", Err: err, Detail: detail}
	}
	windows := verbs.Features{Window1: true}
	for _, c := range []struct {
		f       verbs.Features
		feature string
		err     error
		bad     string
	}{
		{verbs.Features{}, "resize", op(errors.Join(verbs.ErrUnsupported, syscall.EOPNOTSUPP), ""), ""},
		{verbs.Features{}, "DC target", op(verbs.ErrUnsupported, "the dynamically connected transport is mlx5's"), ""},
		{verbs.Features{}, "resize", op(verbs.ErrUnsupported, ""), "without a reason"},
		{verbs.Features{}, "resize", verbs.ErrUnsupported, "without a reason"},
		{verbs.Features{}, "resize", op(errors.Join(verbs.ErrUnsupported, syscall.EINVAL), ""), "without a reason"},
		{verbs.Features{}, "ATOMIC_WRITE", errors.Join(verbs.ErrUnsupported, &verbs.WCError{Status: verbs.WCLocalQPOperation}), ""},
		{windows, "memory windows, type 1", op(errors.Join(verbs.ErrUnsupported, syscall.EOPNOTSUPP), ""), "tells that it has it"},
		{windows, "memory windows, type 2", op(errors.Join(verbs.ErrUnsupported, syscall.EOPNOTSUPP), ""), ""},
	} {
		got := badRefusal(c.f, c.feature, c.err)
		if c.bad == "" {
			require.Empty(t, got)
			continue
		}
		require.Contains(t, got, c.bad)
	}
}
