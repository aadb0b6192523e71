package cache

import (
	"context"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// absent is the verdict that there is no record: no bucket has an entry of the key.
const absent = mirror.Verdict(255)

// tornBuckets is how often a bucket that the server is changing is READ at most.
const tornBuckets = 3

// probe READs the buckets of a key that has no entry in the map, or none that is true, and what they point at. mu
// must be held; it is released during READs, which are part of the caller's section.
func (s *session) probe(ctx context.Context, fingerprint uint64, room []wire.Entry, f *fetch) (v mirror.Verdict, err error) {
	p, ok := s.m.Probe(fingerprint)
	if !ok {
		return mirror.Ask, nil
	}
	for i := range p.Buckets() {
		found, refusal, err := s.bucket(ctx, &p, i, room[:0])
		if err != nil {
			return 0, err
		}
		if refusal != nil {
			s.c.count.refused.Add(1)
			return mirror.Ask, nil
		}
		if v, err = s.tryAll(ctx, found, f); err != nil || v != mirror.Next {
			if err == nil && v == mirror.Hit {
				s.c.count.probes.Add(1)
				for k := range found {
					s.m.Adopt(p.Since(), &found[k])
				}
			}
			return v, err
		}
	}
	if s.placed { // the record may be at another server
		return mirror.Ask, nil
	}
	s.c.count.probes.Add(1)
	return absent, nil
}

// bucket READs one bucket. mu must be held; it is released during the READ.
func (s *session) bucket(ctx context.Context, p *mirror.Probe, i int, room []wire.Entry) (found []wire.Entry, refusal, err error) {
	b, err := s.buffer(ctx, wire.BucketSize)
	if err != nil { // no memory can be registered: there is another way
		return nil, err, nil
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.releaseAfter(err, b)
	}()
	rkey, addr := p.At(i)
	for range tornBuckets {
		s.c.count.reads.Add(1)
		if err = s.readOne(ctx, verbs.Remote{Addr: addr, RKey: rkey}, b.mr.SGE(b.off, wire.BucketSize)); err != nil {
			return nil, nil, err
		}
		if found, refusal = p.Read(b.bytes(wire.BucketSize), i, room); refusal != wire.Torn {
			break
		}
	}
	return found, refusal, nil
}
