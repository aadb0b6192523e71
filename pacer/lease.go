package pacer

// leased sets the part of a shared threshold that this process may use to the result of decide,
// and returns it.
func (p *Pacer) leased(decide func(wants bool, outstanding int64) int64) (wants bool, lease int64) {
	p.mu.Lock()
	defer p.unlock()
	outstanding := p.s.Outstanding()
	wants = p.s.Held() || outstanding > 0
	lease = decide(wants, outstanding)
	p.s.Lease(lease)
	return wants, lease
}

func (p *Pacer) lease(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s.Lease(bytes)
}
