package pacer

// Device is the name of the device whose pacer [For] made; empty for one that [New] made, which
// may pace queue pairs of any.
func (p *Pacer) Device() string { return p.device }
