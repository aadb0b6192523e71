package lab

import (
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
