//go:build !linux

package pfc

import "errors"

// Netdev is for Linux.
func Netdev(name string, priority int) (Source, error) { return nil, errors.ErrUnsupported }
