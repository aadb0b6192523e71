package verbs

import (
	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// PD is a protection domain: memory regions, queue pairs and address handles
// of one domain can be used together, those of different ones cannot. Its
// methods are safe for concurrent use.
type PD struct {
	life life.Life
	dev  *Device
	pd   cgo.PD
}

// AllocPD allocates a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	p := &PD{dev: d}
	if err := p.life.Attach("pd", life.Label("pd"), &d.life); err != nil {
		return nil, err
	}
	pd, err := cgo.AllocPD(d.ctx)
	if err != nil {
		d.life.RemoveChild("pd")
		return nil, opError("allocate pd on", d.name, err)
	}
	p.pd = pd
	return p, nil
}

// Close frees the domain. It is refused with [ErrInUse] while anything in the
// domain is open. Closing twice is not an error.
func (p *PD) Close() error {
	return p.life.Close("pd", nil, func() error { return p.dev.destroyed(cgo.DeallocPD(p.pd)) })
}

// Device is the device of the domain.
func (p *PD) Device() *Device { return p.dev }
