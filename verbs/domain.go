package verbs

import (
	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// TD is a thread domain: queues made under it are used by one thread at a
// time, so that the provider needs no locks.
type TD struct {
	life life.Life
	dev  *Device
	td   cgo.TD
}

// AllocTD makes a thread domain. Devices that gain nothing from it return
// [ErrUnsupported].
func (d *Device) AllocTD() (*TD, error) {
	t := &TD{dev: d}
	if err := t.life.Attach("td", life.Label("td"), &d.life); err != nil {
		return nil, err
	}
	var err error
	if t.td, err = cgo.AllocTD(d.ctx); err != nil {
		d.life.RemoveChild("td")
		return nil, opError("allocate thread domain on", d.name, unsupported(err))
	}
	return t, nil
}

// Close frees the domain. It is refused with [ErrInUse] while a parent domain
// has it.
func (t *TD) Close() error {
	return t.life.Close("td", nil, func() error { return t.dev.destroyed(cgo.DeallocTD(t.td)) })
}

// ParentDomain makes a protection domain with the keys and memory of p. Its
// queue pairs belong to the thread domain td, if it is not nil: the caller
// promises that no two goroutines use one at the same time.
func (p *PD) ParentDomain(td *TD) (*PD, error) {
	q := &PD{dev: p.dev}
	parents := []*life.Life{&p.dev.life, &p.life}
	var raw cgo.TD
	if td != nil {
		parents, raw = append(parents, &td.life), td.td
	}
	if err := q.life.Attach("pd", life.Label("parent domain"), parents...); err != nil {
		return nil, err
	}
	var err error
	if q.pd, err = cgo.AllocParentDomain(p.dev.ctx, p.pd, raw); err != nil {
		q.life.Detach("pd")
		return nil, opError("allocate parent domain on", p.dev.name, unsupported(err))
	}
	return q, nil
}
