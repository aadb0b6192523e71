package main

import (
	"errors"
	"path/filepath"

	"github.com/goverbs/goverbs/internal/nldev"
)

// kernelDevice is a device as the kernel has it, whatever libibverbs makes of
// it.
type kernelDevice struct {
	nldev.Device
	driver string // empty if it is unknown
	file   string // device file; empty without ib_uverbs
	number uint64 // of the device file
}

func kernelDevices() ([]kernelDevice, error) {
	list, err := nldev.Devices()
	if errors.Is(err, nldev.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]kernelDevice, len(list))
	for i, d := range list {
		out[i].Device = d
		if c, err := nldev.UVerbs(d.Index); err == nil && c.Name != "" {
			out[i].driver, out[i].file, out[i].number = c.Driver, filepath.Join("/dev/infiniband", c.Name), c.Number
		}
	}
	return out, nil
}
