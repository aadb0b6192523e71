package dc

import (
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/dc"
)

// idleMemory returns what an initiator's heap grows by for each target that is only
// known.
func idleMemory() (float64, error) {
	const n = 20_000
	c, s, err := rig.NewHosts()
	if err != nil {
		return 0, err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: c.PD, GID: c.GID})
	if err != nil {
		return 0, err
	}
	defer i.Close()
	t, err := dc.NewTarget(dc.TargetConfig{PD: s.PD, GID: s.GID})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	a := t.Address()
	for range n {
		a.Generation++ // another target
		if _, err := i.Resolve(a, 1); err != nil {
			return 0, fmt.Errorf("resolve: %w", err)
		}
	}
	per := (heap() - before) / n
	runtime.KeepAlive(i)
	return per, nil
}
