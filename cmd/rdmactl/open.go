package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// each opens the devices that were asked for, or all, one after the other. A
// device that cannot be opened does not hide the others.
func each(names []string, f func(*verbs.Device) error) error {
	list, err := verbs.Devices()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		for _, d := range list {
			names = append(names, d.Name)
		}
	}
	var failures []error
	for _, name := range slices.Compact(names) {
		d, err := verbs.Open(name, verbs.DeviceConfig{})
		if err == nil {
			err = errors.Join(f(d), d.Close())
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// eachPort calls f for each port of the devices that were asked for.
func eachPort(names []string, f func(*verbs.Device, verbs.Port) error) error {
	return each(names, func(d *verbs.Device) error {
		for n := 1; n <= d.Attr().Ports; n++ {
			p, err := d.Port(uint8(n))
			if err != nil {
				return err
			}
			if err := f(d, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// deviceArgs parses a command line that may name devices.
func deviceArgs(args []string) ([]string, error) { return flags(args, 0, 255, nil) }

// devicesAndNetdevs parses such a command line and returns the netdevs of this
// host too.
func devicesAndNetdevs(ctx context.Context, args []string) ([]string, []netpath.Netdev, error) {
	names, err := deviceArgs(args)
	if err != nil {
		return nil, nil, err
	}
	netdevs, err := netpath.Netdevs(ctx)
	return names, netdevs, err
}

// only keeps what belongs to the devices that were asked for.
func only[T any](all []T, names []string, device func(T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(v T) bool { return device(v) == name }) {
			return nil, fmt.Errorf("%w: %s", verbs.ErrNoDevice, name)
		}
	}
	return slices.DeleteFunc(all, func(v T) bool { return !slices.Contains(names, device(v)) }), nil
}

// some returns a list that may be incomplete because of err. An empty one would
// say that there is nothing.
func some[E any, L interface {
	~[]E
	answer
}](list L, err error) (answer, error) {
	if err != nil && len(list) == 0 {
		return nil, err
	}
	return list, err
}
