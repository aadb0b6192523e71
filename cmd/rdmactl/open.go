package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
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

// only keeps the devices that were asked for.
func only(all []kernelDevice, names []string) ([]kernelDevice, error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(d kernelDevice) bool { return d.Name == name }) {
			return nil, fmt.Errorf("%w: %s", verbs.ErrNoDevice, name)
		}
	}
	return slices.DeleteFunc(all, func(d kernelDevice) bool { return !slices.Contains(names, d.Name) }), nil
}
