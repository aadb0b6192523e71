package place

import (
	"cmp"
	"slices"
)

// Move is the move of a shard from one server to another. From is 0 if the shard has no owner
// that is a member.
type Move struct {
	Shard    int
	From, To uint8
}

// share is what a member has of the shards, and is to have.
type share struct {
	number   uint8
	weight   int
	has      int
	quota    int
	fraction int // by which its exact share is above the quota, times all weights
}

// Plan returns the fewest moves after which the number of each member's shards differs by less than one
// from its share by weight. A member that is draining has no share. If no member has a weight, all
// have the same. Moves of a plan that are carried out leave the other ones as the plan: servers that
// carry them out in any order come to the same end.
func (p *Placement) Plan() []Move {
	shares, owner := p.shares()
	if len(shares) == 0 {
		return nil
	}
	p.round(shares)
	var moves []Move
	for shard, s := range p.Shards {
		o := owner[s.Owner]
		if o != nil && o.has <= o.quota {
			continue
		}
		m := Move{Shard: shard, To: neediest(shares)}
		if o != nil {
			m.From = o.number
			o.has--
		}
		owner[m.To].has++
		moves = append(moves, m)
	}
	return moves
}

// neediest returns the number of the member that lacks most shards, the lowest one of equals.
func neediest(shares []share) uint8 {
	return slices.MaxFunc(shares, func(a, b share) int { return (a.quota - a.has) - (b.quota - b.has) }).number
}

// shares returns the members by number, and an index of them by number.
func (p *Placement) shares() (shares []share, owner [256]*share) {
	weightless := true
	for s := range p.Members() {
		w := int(s.Weight)
		if s.State == Draining {
			w = 0
		}
		weightless = weightless && w == 0
		shares = append(shares, share{number: s.Number, weight: w})
	}
	for i := range shares {
		owner[shares[i].number] = &shares[i]
		if weightless {
			shares[i].weight = 1
		}
	}
	for _, s := range p.Shards {
		if o := owner[s.Owner]; o != nil {
			o.has++
		}
	}
	return shares, owner
}

// round sets the quotas: exact shares rounded down, and one more for as many members as that leaves
// shards. Those are the members that have more already, since each saves a move, and then those with
// the largest fractions.
func (p *Placement) round(shares []share) {
	left, total := len(p.Shards), 0
	for i := range shares {
		total += shares[i].weight
	}
	var rounded []*share
	for i := range shares {
		s := &shares[i]
		exact := len(p.Shards) * s.weight
		s.quota, s.fraction = exact/total, exact%total
		left -= s.quota
		if s.fraction > 0 {
			rounded = append(rounded, s)
		}
	}
	slices.SortStableFunc(rounded, func(a, b *share) int {
		return cmp.Or(atMostOne(b.has-b.quota)-atMostOne(a.has-a.quota), b.fraction-a.fraction)
	})
	for _, s := range rounded[:left] {
		s.quota++
	}
}

// atMostOne returns 1 if n is positive, else 0.
func atMostOne(n int) int { return max(0, min(n, 1)) }
