//go:build !linux

package nldev

import "errors"

func Devices() ([]Device, error)     { return nil, errors.ErrUnsupported }
func Ports(uint32) ([]Port, error)   { return nil, errors.ErrUnsupported }
func UVerbs(uint32) (CharDev, error) { return CharDev{}, errors.ErrUnsupported }
func Shared() (bool, error)          { return false, errors.ErrUnsupported }
func Resources() ([]Resource, error) { return nil, errors.ErrUnsupported }
