package lab

import (
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/ci/topo"
)

// Spare makes an RDMA device, [topo.SpareDevice], that the test may take apart;
// it goes when the test ends. It needs the lab.
func Spare(t testing.TB) {
	t.Helper()
	RequireTopology(t, "wire")
	if err := topo.AddSpare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := topo.DelSpare(); err != nil {
			t.Error(err)
		}
	})
}

// IP runs the program of that name, which has words for all that a test changes
// of netdevs, addresses, routes and neighbours.
func IP(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}
