package place

import (
	"fmt"
	"slices"
)

// next returns a copy of the placement with the next epoch.
func (p *Placement) next() *Placement {
	n := *p
	n.Epoch++
	n.Servers, n.Shards = slices.Clone(p.Servers), slices.Clone(p.Shards)
	return &n
}

// own makes a server the owner of a shard, in the placement's epoch.
func (p *Placement) own(shard int, number uint8, handed bool) {
	p.Shards[shard] = Shard{Owner: number, Epoch: p.Epoch, Handed: handed}
}

// CanJoin reports whether a life can become a member: its id has no member, and its boot number is
// greater than that of the last one.
func (p *Placement) CanJoin(life Life) bool {
	old := p.find(life.ID)
	return old == nil || old.State == Gone && old.Boot < life.Boot
}

// Ended reports whether a life was a member, or a later one of its id.
func (p *Placement) Ended(life Life) bool {
	last := p.find(life.ID)
	return last != nil && (last.Boot > life.Boot || last.Boot == life.Boot && last.State == Gone)
}

// Join returns the placement with another member, which owns nothing yet. Its number is that of
// its id's former life, a free one, or that of a server that is gone. If the life cannot join the
// error matches [ErrChange]; without a number for it, [ErrFull].
func (p *Placement) Join(s Server) (*Placement, error) {
	if !p.CanJoin(s.Life) {
		return nil, fmt.Errorf("%w: %s with boot %d cannot join", ErrChange, s.ID, s.Boot)
	}
	n := p.next()
	s.State = Member
	switch old := n.find(s.ID); {
	case old == nil && len(n.Servers) < MaxServers:
		s.Number = n.free()
	case old == nil:
		i := slices.IndexFunc(n.Servers, func(s Server) bool { return s.State == Gone })
		if i < 0 {
			return nil, fmt.Errorf("%w: it has %d", ErrFull, MaxServers)
		}
		s.Number = n.Servers[i].Number
		n.Servers = slices.Delete(n.Servers, i, i+1)
	default:
		s.Number = old.Number
		n.Servers = slices.DeleteFunc(n.Servers, func(o Server) bool { return o.ID == s.ID })
	}
	n.Servers = append(n.Servers, s)
	slices.SortFunc(n.Servers, func(a, b Server) int { return int(a.Number) - int(b.Number) })
	if n.messageLength() > MaxMessage {
		return nil, fmt.Errorf("%w: a message has no space for %s", ErrFull, s.Address)
	}
	return n, nil
}

// free returns the lowest number that no server has. There must be one.
func (p *Placement) free() uint8 {
	for i := range p.Servers {
		if int(p.Servers[i].Number) != i+1 {
			return uint8(i + 1)
		}
	}
	return uint8(len(p.Servers) + 1)
}

// TakeOver returns the placement after the end of a life: the server is gone, and other members own
// its shards. Their records are lost. It needs another member.
func (p *Placement) TakeOver(dead Life) (*Placement, error) {
	if p.Number(dead) == 0 {
		return nil, fmt.Errorf("%w: %s with boot %d is no member", ErrChange, dead.ID, dead.Boot)
	}
	n := p.next()
	n.find(dead.ID).State = Gone
	if len(slices.Collect(n.Members())) == 0 {
		return nil, fmt.Errorf("%w: %s is the last member", ErrChange, dead.ID)
	}
	for _, m := range n.Plan() {
		if m.From == 0 {
			n.own(m.Shard, m.To, false)
		}
	}
	return n, nil
}

// Succeed returns the placement in which the next life of a member's id takes the place of the last
// one, with its shards. Their records are lost. A server's next life does so when no other member
// lives.
func (p *Placement) Succeed(s Server) (*Placement, error) {
	n := p.next()
	old := n.find(s.ID)
	if old == nil || old.State == Gone || old.Boot >= s.Boot {
		return nil, fmt.Errorf("%w: no former life of %s is a member", ErrChange, s.ID)
	}
	s.Number, s.State = old.Number, Member
	*old = s
	for i := range n.Shards {
		if n.Shards[i].Owner == s.Number {
			n.own(i, s.Number, false)
		}
	}
	return n, nil
}

// Move returns the placement after the owner of shards has handed them over to another member.
func (p *Placement) Move(to Life, shards ...int) (*Placement, error) {
	number, n := p.Number(to), p.next()
	for _, shard := range shards {
		if number == 0 || number == p.Shards[shard].Owner {
			return nil, fmt.Errorf("%w: %s with boot %d is no member, or owns shard %d", ErrChange, to.ID, to.Boot, shard)
		}
		n.own(shard, number, true)
	}
	return n, nil
}

// Drain returns the placement in which a member is draining, or is not any more.
func (p *Placement) Drain(life Life, drain bool) (*Placement, error) {
	number := p.Number(life)
	if number == 0 {
		return nil, fmt.Errorf("%w: %s with boot %d is no member", ErrChange, life.ID, life.Boot)
	}
	n := p.next()
	n.Member(number).State = Member
	if drain {
		n.Member(number).State = Draining
	}
	return n, nil
}
