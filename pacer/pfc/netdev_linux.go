package pfc

import (
	"fmt"

	"github.com/safchain/ethtool"
)

type netdev struct {
	tool     *ethtool.Ethtool
	name     string
	priority int
}

// Netdev returns the counters of a network interface that "ethtool -S" shows.
func Netdev(name string, priority int) (Source, error) {
	if err := check(priority); err != nil {
		return nil, err
	}
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("pfc: read %s: %w", name, err)
	}
	n := netdev{tool, name, priority}
	if _, err := n.Read(); err != nil {
		tool.Close()
		return nil, err
	}
	return n, nil
}

// Close closes the socket through which the counters are read.
func (n netdev) Close() error {
	n.tool.Close()
	return nil
}

func (n netdev) Read() (Counters, error) {
	all, err := n.tool.Stats(n.name)
	if err == nil {
		var c Counters
		if c, err = counters(n.priority, func(name string) (uint64, bool, error) {
			v, ok := all[name]
			return v, ok, nil
		}); err == nil {
			return c, nil
		}
	}
	return Counters{}, fmt.Errorf("pfc: read %s: %w", n.name, err)
}
