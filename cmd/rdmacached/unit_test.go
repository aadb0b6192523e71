package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The configuration of the packages is right but for the address, which is not this host's.
func TestConfigOfPackages(t *testing.T) {
	c, err := readConfig("../../deploy/rdmacached.json")
	require.NoError(t, err)
	require.Equal(t, "10.77.0.2:7481", c.Listen)
	require.Equal(t, "/var/lib/rdmacached/snapshot", c.Snapshot)
}

// The configuration of deploy/kubernetes is right once it has the name of the pod and the address of its host.
func TestConfigOfKubernetes(t *testing.T) {
	const file = "../../deploy/kubernetes/rdmacached.json"
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = parseConfig(b)
	require.Error(t, err, "POD_NAME is no id")
	c, err := parseConfig([]byte(strings.NewReplacer("POD_NAME", "rdmacached-0", "HOST_IP", "10.77.0.2").Replace(string(b))))
	require.NoError(t, err)
	require.Equal(t, "10.77.0.2:7481", c.Listen)
	require.Equal(t, c.Listen, c.Cluster.Advertise)
}

// systemd finds nothing wrong with the unit, and little that it leaves open.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	b, err := os.ReadFile("rdmacached.service")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "rdmacached.service")
	const program = "/usr/local/bin/rdmacached"
	require.Contains(t, string(b), "ExecStart="+program+" ")
	require.Contains(t, string(b), "\nRestartPreventExitStatus=78\n")
	require.NotContains(t, string(b), "ExecStartPre=", "systemd looks at the status of ExecStart alone")
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(string(b), program, self)), 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out), "warnings")
	out, err = exec.Command(analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
