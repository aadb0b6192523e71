package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
)

// ask runs a command line as JSON.
func ask[T any](t *testing.T, line string) T {
	t.Helper()
	status, stdout, stderr := ctl(t, line+" -json")
	require.Zero(t, status, "%s: %s", line, stderr)
	var v T
	require.NoError(t, json.Unmarshal([]byte(stdout), &v), stdout)
	return v
}

func TestCtlLists(t *testing.T) {
	end := lab.Require(t, 1)[0]
	for _, line := range []string{"devices", "features", "devices " + end.Device, "features " + end.Device} {
		status, stdout, stderr := ctl(t, line)
		require.Zero(t, status, "%s: %s", line, stderr)
		require.Empty(t, stderr, line)
		require.Contains(t, stdout, end.Device, line)
		require.True(t, strings.HasPrefix(stdout, "DEVICE"), stdout)
		require.NotEmpty(t, ask[[]map[string]any](t, line), line)
	}
	for _, line := range []string{"devices nosuch0", "features nosuch0"} {
		status, stdout, stderr := ctl(t, line)
		require.Equal(t, 1, status, line)
		require.Empty(t, stdout, line)
		require.Contains(t, stderr, "no such RDMA device", line)
		require.Contains(t, stderr, "nosuch0", line)
	}

	list := ask[deviceList](t, "devices "+end.Device)
	require.Len(t, list, 1)
	d := list[0]
	require.True(t, d.Usable)
	require.NotEmpty(t, d.Driver)
	require.Regexp(t, "^/dev/infiniband/uverbs[0-9]+$", d.File)
	i := slices.IndexFunc(d.Ports, func(p portRow) bool { return p.Netdev == end.Netdev })
	require.GreaterOrEqual(t, i, 0)
	port := d.Ports[i]
	require.Equal(t, "active", port.State)
	require.True(t, slices.ContainsFunc(port.GIDs, func(g gidRow) bool {
		return g.Type == "RoCE v2" && strings.HasSuffix(g.GID, end.Addr.String()) && g.Netdev == end.Netdev
	}), "%+v", port.GIDs)
}

func TestCtlPath(t *testing.T) {
	lab.Spare(t)
	p := ask[pathResult](t, "path "+topo.SpareBehind.String())
	require.Equal(t, topo.SpareDevice, p.Device)
	require.Equal(t, topo.SparePeer, p.NextHop)
	require.Equal(t, 4096, p.MTU)
	require.Equal(t, topo.SpareAddr, p.Source)
	status, stdout, stderr := ctl(t, "path -from 10.79.0.1 10.79.0.2")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, p.MAC)
	require.Contains(t, stdout, "rxespare")
	for line, want := range map[string]string{
		"path 203.0.113.1":                 "no route",
		"path -from 203.0.113.1 10.79.0.2": "no such address on this host",
		"path 127.0.0.1":                   "netdev without an RDMA device",
		"path 10.79.0.99":                  "next hop does not answer",
	} {
		status, stdout, stderr := ctl(t, line)
		require.Equal(t, 1, status, line)
		require.Empty(t, stdout, line)
		require.Contains(t, stderr, want, line)
	}
}

// mustFind requires that doctor finds something about an object; the exit
// status is 1 when a problem is among what it finds.
func mustFind(t *testing.T, status int, stdout, object, check, text string) {
	t.Helper()
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), stdout)
	require.Equal(t, r.count(problem) > 0, status == 1, "status %d, %s", status, stdout)
	for _, f := range r.Findings {
		if f.Object == object && f.Check == check {
			require.Contains(t, f.Text, text)
			require.NotEmpty(t, f.Remedy)
			return
		}
	}
	t.Fatalf("nothing about %s from %s: %+v", object, check, r.Findings)
}

func TestDoctorInTheLab(t *testing.T) {
	lab.RequireTopology(t, "wire")
	status, stdout, stderr := ctl(t, "doctor")
	require.Zero(t, status, "%s%s", stdout, stderr)
	require.Contains(t, stdout, "devices: 2, problems: 0")
}

func TestDoctorFindsLinkDown(t *testing.T) {
	lab.Spare(t)
	require.NoError(t, topo.SetUp(topo.SpareNetdev, false))
	status, stdout, stderr := ctl(t, "doctor")
	require.Equal(t, 1, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "problem: rxespare port 1: link down: its netdev spare0 is down\n    remedy: ip link set spare0 up\n")
	require.NoError(t, topo.SetUp(topo.SpareNetdev, true))
	require.Eventually(t, func() bool {
		status, _, _ := ctl(t, "doctor")
		return status == 0
	}, 10*time.Second, 100*time.Millisecond, "the remedy helps")
}

func TestDoctorFindsMTU(t *testing.T) {
	lab.Spare(t)
	require.NoError(t, topo.SetMTU(topo.SpareNetdev, 1500))
	status, stdout, _ := ctl(t, "doctor -json")
	require.Zero(t, status, "it works, but less well")
	mustFind(t, status, stdout, "rxespare port 1", "mtu", "limits the RDMA MTU to 1024 of 4096")
	mustFind(t, status, stdout, "host", "mtu", "[1024 4096]")
	require.NoError(t, topo.SetMTU(topo.SpareNetdev, 300))
	status, stdout, _ = ctl(t, "doctor -json")
	mustFind(t, status, stdout, "rxespare port 1", "mtu", "too small for packets of the active RDMA MTU 256")
	require.Equal(t, 1, status)
}

func TestDoctorFindsAddresses(t *testing.T) {
	lab.Spare(t)
	lab.IP(t, "addr", "flush", "dev", topo.SpareNetdev)
	require.Eventually(t, func() bool {
		_, stdout, _ := ctl(t, "doctor")
		return strings.Contains(stdout, "rxespare port 1: the only RoCE v2 GID is link-local")
	}, 10*time.Second, 100*time.Millisecond)
}

func TestDoctorFindsDeviceFiles(t *testing.T) {
	lab.Spare(t)
	file := ""
	for _, d := range ask[deviceList](t, "devices") {
		if d.Name == topo.SpareDevice {
			file = d.File
		}
	}
	require.NotEmpty(t, file)
	aside := file + ".aside"
	require.NoError(t, os.Rename(file, aside))
	status, stdout, _ := ctl(t, "doctor -json")
	mustFind(t, status, stdout, topo.SpareDevice, "files", file+" is missing")
	require.Equal(t, 1, status)

	require.NoError(t, syscall.Mknod(file, syscall.S_IFCHR|0o666, 231<<8|250))
	status, stdout, _ = ctl(t, "doctor -json")
	mustFind(t, status, stdout, topo.SpareDevice, "files", "number of another device")

	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Rename(aside, file))
	require.NoError(t, os.Chmod(file, 0o600))
	status, stdout = program(t, unprivileged(), nil, "doctor -json")
	mustFind(t, status, stdout, topo.SpareDevice, "files", "no access to "+file)
}

func TestDoctorFindsProvider(t *testing.T) {
	lab.RequireTopology(t, "wire") // the guest's files are its own
	libs, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	require.NoError(t, err)
	if len(libs) == 0 {
		t.Skip("the providers are kept elsewhere")
	}
	for _, lib := range libs {
		require.NoError(t, os.Rename(lib, lib+".aside"))
		defer func() { require.NoError(t, os.Rename(lib+".aside", lib)) }()
	}
	// A new process, as libibverbs loads providers once.
	status, stdout := program(t, nil, nil, "doctor -json")
	mustFind(t, status, stdout, "rxe0", "provider", "librxe-rdmav*.so is missing")
	require.Equal(t, 1, status)
}

func TestDoctorFindsLimits(t *testing.T) {
	lab.RequireTopology(t, "wire")
	status, stdout := program(t, unprivileged(), []string{"TEST_MEMLOCK=65536", "TEST_NOFILE=200"}, "doctor -json")
	mustFind(t, status, stdout, "limits", "memlock", "only 64 KiB of memory may be locked")
	mustFind(t, status, stdout, "limits", "nofile", "only 200 files")
	require.Equal(t, 1, status)
	status, stdout = program(t, nil, []string{"TEST_MEMLOCK=65536"}, "doctor")
	require.Zero(t, status, "root may lock all: %s", stdout)
}

func TestDoctorFindsNamespace(t *testing.T) {
	lab.RequireTopology(t, "wire")
	other := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	status, stdout := program(t, other, nil, "doctor -json")
	mustFind(t, status, stdout, "rxe0 port 1", "namespace", "its netdev is in another network namespace")
	require.Equal(t, 1, status)

	// Refused as long as another namespace exists, and they go a while after
	// their last process.
	require.Eventually(t, func() bool {
		return exec.Command("rdma", "system", "set", "netns", "exclusive").Run() == nil
	}, 20*time.Second, 100*time.Millisecond)
	defer func() {
		require.Eventually(t, func() bool {
			return exec.Command("rdma", "system", "set", "netns", "shared").Run() == nil
		}, 20*time.Second, 100*time.Millisecond)
	}()
	status, stdout = program(t, other, nil, "doctor -json")
	mustFind(t, status, stdout, "host", "devices", "this network namespace has no RDMA device")
	require.Equal(t, 1, status)
	status, stdout = program(t, other, nil, "devices")
	require.Zero(t, status)
	require.Contains(t, stdout, "no RDMA devices")
}

// unprivileged is a user namespace without rights over the host: its root is
// the host's user 65534 (nobody).
func unprivileged() *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{}}
}

// program runs a command line in a process of its own.
func program(t *testing.T, attr *syscall.SysProcAttr, env []string, line string) (status int, stdout string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", strings.Fields(line)...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	cmd.SysProcAttr = attr
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(fmt.Errorf("%s: %w", line, err))
	}
	if len(out) == 0 {
		t.Log(errs.String())
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
