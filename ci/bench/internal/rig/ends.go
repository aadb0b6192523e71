// Package rig is what the sides of benchmarks run on: the two ends of the wire,
// queue pairs in this process, and programs as processes of their own.
package rig

import (
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Each pass has a TCP port of its own: the last one's may linger.
var lastPort atomic.Int32

// NextPort returns a port that no pass of this process has used.
func NextPort() string { return strconv.Itoa(20000 + int(lastPort.Add(1))%20000) }

// Endpoints returns the two ends of the wire: client's, then server's.
func Endpoints() (client, server lab.Endpoint, err error) {
	list, err := lab.Endpoints()
	switch {
	case err != nil:
		return
	case len(list) == 0:
		return client, server, errors.New("no RDMA device with an address: run this in the lab")
	case len(list) == 1:
		return list[0], list[0], nil
	}
	return list[0], list[1], nil
}

var gids sync.Map // of gidKey: string

type gidKey struct {
	device string
	addr   netip.Addr
}

// GIDIndex finds the index that perftest wants, once for each end.
func GIDIndex(device string, addr netip.Addr) (string, error) {
	if v, ok := gids.Load(gidKey{device, addr}); ok {
		return v.(string), nil
	}
	d, err := verbs.Open(device, verbs.DeviceConfig{})
	if err != nil {
		return "", err
	}
	defer d.Close()
	v2 := verbs.GIDRoCEv2
	g, err := d.FindGID(verbs.GIDQuery{Addr: addr, Type: &v2})
	if err != nil {
		return "", err
	}
	index := strconv.Itoa(int(g.Index))
	gids.Store(gidKey{device, addr}, index)
	return index, nil
}
