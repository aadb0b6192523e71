package srd

import "time"

// Labels are the flow labels of the ways to a port.
func (ep *Endpoint) Labels(to Addr) (all []uint32) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for w := range ep.handles.of {
		if w.to == to.GID {
			all = append(all, w.label)
		}
	}
	return all
}

// AckDelay is how long responses wait for others, as was learned.
func (ep *Endpoint) AckDelay() time.Duration {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.driver.(*links).e.AckDelay()
}
