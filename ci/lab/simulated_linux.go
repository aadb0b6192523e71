package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/internal/sysroot"
)

// simulated lists the devices of this process in a fabric of simulated ones (docs/simhca.md),
// which lie on lo.
func simulated() (out []Endpoint, err error) {
	tables, err := filepath.Glob(sysroot.Root() + "/class/infiniband/*/ports/1/gids")
	for _, dir := range tables {
		device := strings.Split(strings.TrimPrefix(dir, sysroot.Root()), "/")[3]
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(string(text))); err == nil && a.Is4In6() {
				out = append(out, Endpoint{device, "lo", a.Unmap()})
				break
			}
		}
	}
	return out, err
}

// inFabric reports whether the devices are simulated ones of a fabric.
func inFabric() bool { return sysroot.StandIn() && strings.Contains(os.Getenv("SIMHCA"), "@") }
