package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// featureTable is the first column of the table of features, with what it says
// of rxe in each kernel.
func featureTable(t testing.TB) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/features.md")
	require.NoError(t, err)
	rows := make(map[string]map[string]string)
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || strings.Contains(line, "---") || strings.Contains(line, "| feature |") {
			continue
		}
		rows[strings.TrimSpace(cells[1])] = map[string]string{"6.1": strings.TrimSpace(cells[4]), "6.12": strings.TrimSpace(cells[5])}
	}
	require.Greater(t, len(rows), 40)
	return rows
}

// Each feature is tried, or there is a reason why it cannot be.
func TestSelfTestCoversTheFeatureTable(t *testing.T) {
	rows, seen := featureTable(t), make(map[string]bool)
	for _, c := range selfTests {
		require.Contains(t, rows, c.feature, "a test of what the table does not have")
		require.False(t, seen[c.feature], "%s: tried twice", c.feature)
		seen[c.feature] = true
	}
	for feature, reason := range notInSelfTest {
		require.Contains(t, rows, feature, "a reason for what the table does not have")
		require.False(t, seen[feature], "%s: tried, and on the list of what cannot be", feature)
		require.NotEmpty(t, reason, feature)
		seen[feature] = true
	}
	for feature := range rows {
		require.True(t, seen[feature], "%s: neither tried nor on the list of what cannot be", feature)
	}
}

func TestVerdicts(t *testing.T) {
	told := func(f verbs.Features) bool { return f.OnDemand }
	refusal := &verbs.OpError{Op: "resize", Object: "cq", Err: errors.Join(verbs.ErrUnsupported, syscall.EOPNOTSUPP)}
	for name, c := range map[string]struct {
		err     error
		offered bool
		result  string
		note    string
	}{
		"no files":                         {fmt.Errorf("open: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}), true, untried, "ulimit nofile=65536"},
		"no files on this host":            {fmt.Errorf("open: %w", syscall.ENFILE), false, untried, "LimitNOFILE"},
		"no error":                         {nil, false, works, ""},
		"refused":                          {refusal, false, refused, "not supported"},
		"refused what the device tells of": {refusal, true, wrong, "the device tells that it has it, and refuses"},
		"failed":                           {&verbs.WCError{Status: verbs.WCRetryExceeded}, true, wrong, "work request"},
		"refused in other words":           {&verbs.OpError{Op: "allocate", Object: "dm", Err: syscall.EINVAL}, false, refused, "invalid argument"},
		"wrong data":                       {errData, false, wrong, "wrong data"},
		"no completion in time":            {fmt.Errorf("wait: %w", context.DeadlineExceeded), true, wrong, "no completion in time"},
		"not to be tried":                  {notTried("it needs CAP_NET_RAW"), false, untried, "CAP_NET_RAW"},
		"memlock":                          {&verbs.OpError{Op: "register memory", Err: verbs.ErrMemlock}, false, untried, "locked-memory"},
		"closing failed too":               {errors.Join(refusal, errClosing), false, wrong, "closing"},
	} {
		got, note := verdict(selfTest{told: told}, verbs.Features{OnDemand: c.offered}, c.err, "")
		require.Equal(t, c.result, got, name)
		require.Contains(t, note, c.note, name)
		require.NotContains(t, note, "\n", name)
	}
}

// What fails while a limit is too low for the self-test, at a peer that tells no more than
// that it refuses for instance, says nothing of the device.
func TestLowLimitsAreNotWrong(t *testing.T) {
	low := facts{Memlock: limit{64 << 10, 64 << 10}, Files: limit{16, 16}}.low()
	require.Contains(t, low, "only 64 KiB of memory may be locked")
	require.Contains(t, low, "--ulimit memlock=-1")
	require.Contains(t, low, "only 16 files may be open")
	require.Contains(t, low, "--ulimit nofile=65536")
	require.Empty(t, facts{Memlock: limit{8 << 20, 8 << 20}, Files: limit{256, 256}}.low())
	require.Empty(t, facts{LocksAll: true, Files: limit{256, 256}}.low())

	for _, err := range []error{&rdmacm.RejectedError{}, verbs.ErrNoDevice, context.DeadlineExceeded} {
		got, note := verdict(selfTest{}, verbs.Features{}, err, low)
		require.Equal(t, untried, got, err)
		require.Contains(t, note, err.Error()+": "+low)
	}
	got, _ := verdict(selfTest{}, verbs.Features{}, verbs.ErrUnsupported, low)
	require.Equal(t, refused, got)
	got, _ = verdict(selfTest{}, verbs.Features{}, errData, low)
	require.Equal(t, wrong, got)
}

func sampleRun() runReport {
	return runReport{
		About: about{Device: "mlx5_0", Driver: "mlx5", DriverVersion: "in-tree", Firmware: "22.36.1010", RDMACore: "56.0", Kernel: "6.12.0", Goverbs: "rdmactl v0.1.0, go1.26.0 linux/amd64", LinkLayer: "Ethernet", Port: 1, MTU: 4096,
			GIDs: []runGID{{Port: 1, Index: 3, Type: "RoCE v2", Kind: "IPv4"}}},
		Results: []runResult{
			{"protection domain", works, 120 * time.Microsecond, ""},
			{"dmabuf", untried, 0, "no dmabuf at hand"},
			{"resize", refused, time.Millisecond, "operation not supported"},
			{"FLUSH", wrong, 5 * time.Second, "no completion in time"},
		},
	}
}

func TestSelfTestTable(t *testing.T) {
	r := sampleRun()
	var b bytes.Buffer
	require.NoError(t, r.text(&b))
	require.Equal(t, `device: mlx5_0 port 1, mlx5 (in-tree), firmware 22.36.1010
kernel: 6.12.0, rdma-core: 56.0, link: Ethernet, MTU 4096
rdmactl v0.1.0, go1.26.0 linux/amd64
FEATURE            RESULT     TIME   NOTE
protection domain  works      120µs  -
dmabuf             not tried  -      no dmabuf at hand
resize             refused    1ms    operation not supported
FLUSH              WRONG      5s     no completion in time
works: 1, refused: 1, WRONG: 1, not tried: 1
`, b.String())
	require.ErrorIs(t, r.err(), errProblem)
	r.Results = r.Results[:3]
	require.NoError(t, r.err(), "what is refused is no failure")
}

func TestSelfTestReport(t *testing.T) {
	r := sampleRun()
	var b bytes.Buffer
	require.NoError(t, show(&b, r, true))
	var back runReport
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, r, back)
	var raw map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &raw))
	for _, key := range []string{"device", "driver", "driver_version", "firmware", "rdma_core", "kernel", "goverbs", "link_layer", "gids", "features"} {
		require.Contains(t, raw["about"], key)
	}
	require.Equal(t, "resize", raw["results"].([]any)[2].(map[string]any)["feature"])
	require.EqualValues(t, 1_000_000, raw["results"].([]any)[2].(map[string]any)["ns"])
}

// A report that goes elsewhere names no address, unless it is asked to.
func TestReportHidesAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"dial 10.77.0.1:4711: no route":              "dial <address>:4711: no route",
		"from ::ffff:10.77.0.1":                      "from <address>",
		"index 0 fe80::5054:ff:fe77:1 RoCE v2":       "index 0 <address> RoCE v2",
		"any fe80::, [fe80::1%h0]:7":                 "any <address>, [<address>%h0]:7",
		"guid 5054:00ff:fe77:0001":                   "guid <address>",
		"peer 192.168.3.4 of nobody's list":          "peer <address> of nobody's list",
		"mac 52:54:00:77:00:01":                      "mac <address>",
		"resize cq on rxe0: operation not supported": "resize cq on rxe0: operation not supported",
		"libibverbs 1.14.44.0.1":                     "libibverbs 1.14.44.0.1",
	} {
		require.Equal(t, want, hideAddresses(in))
	}
}

func TestGIDKinds(t *testing.T) {
	for gid, want := range map[string]string{
		"10.77.0.1": "IPv4", "fe80::1": "link-local", "2001:db8::1": "IPv6", "fd00::1": "IPv6",
	} {
		g := verbs.GIDOf(netip.MustParseAddr(gid))
		require.Equal(t, want, gidKind(verbs.GIDEntry{GID: g, Type: verbs.GIDRoCEv2}), gid)
	}
	require.Equal(t, "InfiniBand", gidKind(verbs.GIDEntry{Type: verbs.GIDInfiniBand}))
}

// Numbers of netdevs repeat in other network namespaces: what counts is the address, too.
func TestEntriesOfOtherNamespaces(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	netdevs := []netpath.Netdev{{Name: "ifb0", Index: 2}, {Name: "eth0", Index: 3, Addrs: []netip.Addr{addr}}}
	for _, c := range []struct {
		index int
		name  string
		here  bool
	}{{2, "", false}, {3, "eth0", true}, {4, "", false}, {0, "", true}} {
		n, here := ownerOf(verbs.GIDEntry{GID: verbs.GIDOf(addr), IfIndex: c.index}, netdevs)
		require.Equal(t, c.name, n.Name, c.index)
		require.Equal(t, c.here, here, c.index)
	}
}

func TestRDMACoreVersion(t *testing.T) {
	maps := `7f00-7f01 r--p 00000000 08:01 123 /usr/lib/x86_64-linux-gnu/librdmacm.so.1.3.44.0
7f01-7f02 r-xp 00001000 08:01 124                        /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0
7f03-7f04 r-xp 00001000 08:01 125                        /usr/lib/x86_64-linux-gnu/libc.so.6
`
	require.Equal(t, "44.0", rdmaCoreVersion(maps))
	require.Equal(t, "unknown", rdmaCoreVersion("7f01-7f02 r-xp 0 08:01 1 /opt/lib/libibverbs.so.1\n"))
	require.Equal(t, "unknown", rdmaCoreVersion(""))
}

func TestDoctorRunUsage(t *testing.T) {
	for line, want := range map[string]struct {
		status int
		stderr string
	}{
		"doctor rxe0":              {2, "-run"},
		"doctor -addresses":        {2, "-run"},
		"doctor -run a b c":        {2, "unexpected arguments"},
		"doctor -run nosuch0":      {1, "nosuch0"},
		"doctor -run nosuch0:9999": {2, "port"},
		"doctor -run nosuch0:0":    {2, "port"},
	} {
		status, stdout, stderr := ctl(t, line)
		require.Equal(t, want.status, status, "%s: %s", line, stderr)
		require.Contains(t, stderr, want.stderr, line)
		require.Empty(t, stdout, line)
	}
}

func TestSelfTestTakesTheDeviceOfTheEnvironment(t *testing.T) {
	t.Setenv("RDMA_DEVICE", "nosuch7")
	status, _, stderr := ctl(t, "doctor -run")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "nosuch7")
	_, _, stderr = ctl(t, "doctor -run nosuch8")
	require.NotContains(t, stderr, "nosuch7")
}

// All rows would be wrong for that one reason.
func TestSelfTestRefusesSoftRoCEOfAnotherNamespace(t *testing.T) {
	a, here := about{Device: "rxe0", Port: 1, Driver: "rxe"}, netpath.Netdev{Name: "h0", Lower: "h0", Device: "rxe0", Port: 1}
	require.NoError(t, testable(a, []netpath.Netdev{here}))
	here.Device = ""
	require.ErrorContains(t, testable(a, []netpath.Netdev{here}), "rxe0: its netdev is in another network namespace")
	a.Driver = "mlx5"
	require.NoError(t, testable(a, nil))
}

// A queue pair of iWARP cannot be connected but by the kernel's connection
// manager: all rows would be wrong for that one reason.
func TestSelfTestRefusesIWARP(t *testing.T) {
	require.ErrorIs(t, testable(about{Device: "irdma0", Protocol: "iw"}, nil), verbs.ErrUnsupported)
	require.ErrorContains(t, testable(about{Device: "irdma0", Protocol: "iw"}, nil), "irdma0 speaks iWARP")
	for _, p := range []string{"roce", "ib", ""} {
		require.NoError(t, testable(about{Protocol: p}, nil), p)
	}
}
