//go:build !linux

package hangup

import "errors"

type poller struct{}

var shared poller

func (*poller) add(*Watch) error { return errors.ErrUnsupported }
func (*poller) remove(*Watch)    {}
