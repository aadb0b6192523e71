package pacer

// Device returns the name of the device for which [ForDevice] made the pacer. It is empty for a pacer
// that [New] made, which may pace queue pairs of any device.
func (p *Pacer) Device() string { return p.device }
