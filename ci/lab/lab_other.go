//go:build !linux

package lab

import (
	"errors"
)

// Endpoints finds none: RDMA devices are Linux's.
func Endpoints() ([]Endpoint, error) { return nil, errors.ErrUnsupported }
