package topo

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/goverbs/goverbs/internal/nldev"
)

// Resource is an RDMA object that a process holds.
type Resource = nldev.Resource

// ThreadOf reports whether pid is a thread of a process.
func ThreadOf(pid, process int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", process, pid))
	return err == nil
}

// Resources lists what the processes of this machine hold. Objects of the
// kernel itself are left out, and kinds that this kernel does not track.
func Resources() ([]Resource, error) {
	all, err := nldev.Resources()
	if errors.Is(err, nldev.ErrNone) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(r Resource) bool { return r.Kernel != "" }), err
}
