package rig

import (
	"errors"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Host is one end of the wire.
type Host struct {
	PD  *verbs.PD
	GID verbs.GIDEntry
	MR  *verbs.MR // 64 KiB that peers may read and write
}

// NewHost opens the device of an endpoint.
func NewHost(e lab.Endpoint) (*Host, error) {
	dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
	if err != nil {
		return nil, err
	}
	h := &Host{}
	if h.PD, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if h.GID, err = dev.FindGID(verbs.GIDQuery{Addr: e.Addr}); err != nil {
		return nil, err
	}
	h.MR, err = h.PD.AllocMR(1<<16, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	return h, err
}

// NewHosts are both ends.
func NewHosts() (client, server *Host, err error) {
	ce, se, err := Endpoints()
	if err != nil {
		return nil, nil, err
	}
	if client, err = NewHost(ce); err == nil {
		server, err = NewHost(se)
	}
	return client, server, err
}

// Connect connects two queue pairs of this process with each other.
func Connect(a, b *verbs.QP) error { return ConnectWith(a, b, verbs.ConnectConfig{}) }

// ConnectWith is Connect with a configuration, the same for both.
func ConnectWith(a, b *verbs.QP, cfg verbs.ConnectConfig) error {
	ea, err := a.Endpoint()
	if err != nil {
		return err
	}
	eb, err := b.Endpoint()
	if err != nil {
		return err
	}
	return errors.Join(a.Connect(eb, cfg), b.Connect(ea, cfg))
}
