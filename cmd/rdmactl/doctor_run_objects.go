package main

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

var objectTests = []selfTest{
	{feature: "device list, query, extended query", run: tryQuery},
	{feature: "ports, GID table, GID by type and address", run: tryGIDs},
	{feature: "protection domain", run: tryPD},
	{feature: "thread domain", run: tryTD},
	{feature: "parent domain", run: tryParentDomain},
}

func tryQuery(b *bench) (string, error) {
	list, err := verbs.Devices()
	if err != nil {
		return "", err
	}
	listed := slices.ContainsFunc(list, func(d verbs.DeviceInfo) bool { return d.Name == b.here.device })
	if err := same("listed", listed, true); err != nil {
		return "", err
	}
	d, err := b.open(b.here)
	if err != nil {
		return "", err
	}
	f, err := d.Features()
	if err != nil {
		return "", err
	}
	if err := same("the number of queue pairs in both queries", f.MaxQP, d.Attr().MaxQP); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d queue pairs, %d completion vectors", f.MaxQP, f.CompletionVecs), nil
}

func tryGIDs(b *bench) (string, error) {
	d, err := b.open(b.here)
	if err != nil {
		return "", err
	}
	gids, err := d.GIDs()
	if err != nil {
		return "", err
	}
	netdevs, err := netpath.Interfaces(b.ctx)
	if err != nil {
		return "", err
	}
	mine := 0
	for _, g := range gids {
		if _, here := ownerOf(g, netdevs); !here || g.Port != b.here.port {
			continue
		}
		mine++
		found, err := d.FindGID(verbs.GIDQuery{Addr: g.GID.Addr(), Type: &g.Type, Port: g.Port})
		if err != nil {
			return "", err
		}
		// VLANs can have the same address.
		if err := same("the GID found", found.GID, g.GID); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d GIDs", mine), nil
}

func tryPD(b *bench) (string, error) {
	d, err := b.open(b.here)
	if err != nil {
		return "", err
	}
	pd, err := d.AllocPD()
	if _, err := keep(b, pd, err); err != nil {
		return "", err
	}
	mr, err := pd.AllocMR(4096, verbs.MRConfig{})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	return "", must("closing it while it has a memory region", pd.Close(), verbs.ErrInUse)
}

func tryTD(b *bench) (string, error) {
	e, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	td, err := e.dev.AllocTD()
	if _, err := keep(b, td, err); err != nil {
		return "", err
	}
	return "", e.inParent(td)
}

func tryParentDomain(b *bench) (string, error) {
	e, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	return "", e.inParent(nil)
}

// inParent makes a queue pair in a parent domain and reads through it.
func (e *end) inParent(td *verbs.TD) error {
	pd, err := e.pd.ParentDomain(td)
	if _, err := keep(e.bench, pd, err); err != nil {
		return err
	}
	base := e.pd
	e.pd = pd
	err = e.join(e.here.gid, verbs.QPConfig{})
	e.pd = base
	if err != nil {
		return err
	}
	y, err := e.base(e.there, verbs.CQConfig{})
	if err != nil {
		return err
	}
	if err := y.join(e.there.gid, verbs.QPConfig{}); err != nil {
		return err
	}
	if err := connect(e.qp, y.qp); err != nil {
		return err
	}
	fill(y.mr.Bytes()[:64])
	return e.reads(y.region(), y.mr.Bytes())
}
