package lab

import (
	"github.com/goverbs/goverbs/ci/topo"
)

// AddAddrs puts n more addresses behind h1 of "wire", up to 1000, as if as many
// hosts were there, and returns them with their devices, each of which has
// several. It works once; they stay as long as the lab. Endpoints does not list
// them.
func AddAddrs(n int) ([]Endpoint, error) {
	if Topology() != "wire" {
		return nil, ErrOutside
	}
	if _, err := Endpoints(); err != nil {
		return nil, err
	}
	if err := topo.AddAddrs(n); err != nil {
		return nil, err
	}
	out := make([]Endpoint, n)
	for i := range out {
		e := &out[i]
		e.Device, e.Netdev, e.Addr = topo.Far(i)
	}
	return out, nil
}
