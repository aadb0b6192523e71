package cache

import "context"

// readRound READs into all buffers of a round: at once, or in parts under the pacer, of several
// keys or of one, as long as the pacer's are.
func (s *session) readRound(ctx context.Context, m *multi) error {
	reads, bytes := 0, 0
	for i := range m.keys[:m.n] {
		if p := &m.keys[i]; p.b != nil {
			reads, bytes = reads+1, bytes+p.size()
		}
	}
	if !s.c.paced(bytes) {
		m.lo, m.hi = 0, m.n
		s.c.count.reads.Add(uint64(reads))
		if s.through != nil {
			return s.through.do(ctx, m.requests())
		}
		return s.read.Do(ctx, s.list(m)...)
	}
	f, err := s.newFlow(ctx)
	if err != nil {
		return err
	}
	for m.lo = 0; m.lo < m.n && err == nil; m.lo = m.hi {
		p := &m.keys[m.lo]
		if m.hi = m.lo + 1; p.b != nil && p.size() > f.most {
			err = f.record(p.b, p.size(), s.regions[p.entry.Place.Region()], uint64(p.entry.Place.Offset()))
			continue
		}
		if reads, bytes := m.part(f.most); reads > 0 {
			err = f.start(bytes, s.list(m), m.requests)
		}
	}
	return f.end(err)
}

// part ends a part that begins at lo, before it gets longer than it may be.
func (m *multi) part(most int) (reads, bytes int) {
	for m.hi = m.lo; m.hi < m.n; m.hi++ {
		if p := &m.keys[m.hi]; p.b != nil {
			if m.hi > m.lo && bytes+p.size() > most {
				break
			}
			reads, bytes = reads+1, bytes+p.size()
		}
	}
	return reads, bytes
}

// furnish gives the keys of a round memory to READ to, and returns how many have some. mu must be
// held; it is released while the first one waits for its turn, and while memory is registered.
func (s *session) furnish(ctx context.Context, m *multi) (n int) {
	if s.share(ctx, m) {
		return m.n
	}
	bytes := 0
	for i := range m.keys[:m.n] {
		p := &m.keys[i]
		if bytes > 0 && bytes+p.size() > multiBytes {
			continue
		}
		var b *buffer
		var err error
		if n == 0 {
			b, err = s.buffer(ctx, p.size())
		} else {
			b, err = s.bufferNow(p.size(), bytes+p.size() > shortBytes)
		}
		if b == nil || err != nil {
			break
		}
		bytes += p.size()
		p.b, p.off = b, 0
		p.marked(s)
		n++
	}
	return n
}

// share gives all keys of a round their memory in one buffer, side by side, if they are short together, and reports
// whether it did. Beginnings of pages, where buffers of their own would be, have few places in a processor's cache.
// mu must be held; it is released while memory is registered.
func (s *session) share(ctx context.Context, m *multi) bool {
	const line = 64
	bytes := 0
	for i := range m.keys[:m.n] {
		p := &m.keys[i]
		p.off = bytes
		bytes += (p.size() + line - 1) &^ (line - 1)
	}
	if bytes > shortBytes || s.c.paced(bytes) {
		return false
	}
	b, err := s.buffer(ctx, bytes)
	if err != nil {
		return false
	}
	m.shared = b
	for i := range m.keys[:m.n] {
		m.keys[i].b = b
		m.keys[i].marked(s)
	}
	return true
}
