package srd

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
