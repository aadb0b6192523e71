package topo

import (
	"fmt"
	"strings"
)

// splitDevice takes "r0/p1" apart; a plain name has no namespace.
func splitDevice(dev string) (namespace, name string) {
	if space, name, ok := strings.Cut(dev, "/"); ok {
		return space, name
	}
	return "", dev
}

// PathCounters counts the packets of each path of "ecmp", in both directions
// together, as the router behind h0 saw them.
func PathCounters() ([Paths]uint64, error) {
	var out [Paths]uint64
	n, err := dial(Routers[0])
	if err != nil {
		return out, err
	}
	defer n.close()
	for i := range out {
		l, err := n.link(PathDev(i))
		if err != nil {
			return out, err
		}
		if l.Attributes.Stats64 == nil {
			return out, fmt.Errorf("no counters of path %d", i)
		}
		out[i] = l.Attributes.Stats64.RXPackets + l.Attributes.Stats64.TXPackets
	}
	return out, nil
}

// ImpairPath impairs a path of "ecmp" in both directions.
func ImpairPath(path int, i Impairment) error {
	for _, r := range Routers {
		if err := Impair(r+"/"+PathDev(path), i); err != nil {
			return err
		}
	}
	return nil
}

// ClearPath ends it. Senders are not told of what routers lose.
func ClearPath(path int) error {
	for _, r := range Routers {
		if err := Restore(r + "/" + PathDev(path)); err != nil {
			return err
		}
	}
	return nil
}
