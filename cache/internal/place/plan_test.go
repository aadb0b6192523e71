package place

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func server(i int, weight uint8) Server {
	return Server{Life: Life{fmt.Sprint("h", i), 1}, Address: fmt.Sprintf("10.77.0.%d:7481", i), Weight: weight}
}

// cluster returns a placement with servers of these weights, of which the first owns all shards.
func cluster(t testing.TB, weights ...uint8) *Placement {
	t.Helper()
	p := New([16]byte{1, 2}, Shards, server(1, weights[0]))
	for i, w := range weights[1:] {
		var err error
		p, err = p.Join(server(i+2, w))
		require.NoError(t, err)
	}
	return p
}

// counts returns the number of shards of each server.
func counts(p *Placement) map[uint8]int {
	n := make(map[uint8]int)
	for _, s := range p.Shards {
		n[s.Owner]++
	}
	return n
}

// apply carries out a move, as its servers do.
func apply(t testing.TB, p *Placement, m Move) *Placement {
	t.Helper()
	require.Equal(t, m.From, p.Shards[m.Shard].Owner)
	next, err := p.Move(p.Member(m.To).Life, m.Shard)
	require.NoError(t, err)
	return next
}

func TestPlan(t *testing.T) {
	p := cluster(t, 1, 1, 2)
	require.Len(t, p.Plan(), 768)
	for _, m := range p.Plan() {
		p = apply(t, p, m)
	}
	require.Equal(t, map[uint8]int{1: 256, 2: 256, 3: 512}, counts(p))
	require.Empty(t, p.Plan())

	p, err := p.Drain(Life{"h3", 1}, true)
	require.NoError(t, err)
	for _, m := range p.Plan() {
		require.Equal(t, uint8(3), m.From)
		p = apply(t, p, m)
	}
	require.Equal(t, map[uint8]int{1: 512, 2: 512}, counts(p))
	p, err = p.Drain(Life{"h3", 1}, false)
	require.NoError(t, err)
	require.Len(t, p.Plan(), 512)
}

// The remainder goes to the servers that have more already, and then to the largest fractions.
func TestPlanRounds(t *testing.T) {
	p := cluster(t, 1, 1, 1)
	for i := range p.Shards {
		p.Shards[i].Owner = uint8(i%3 + 1) // 342, 341, 341
	}
	require.Empty(t, p.Plan())
	p.Shards[0].Owner = 3 // 341, 341, 342
	require.Empty(t, p.Plan())
	p.Shards[3].Owner = 3 // 340, 341, 343
	require.Equal(t, []Move{{0, 3, 1}}, p.Plan())

	p = cluster(t, 5, 3, 2) // 512, 307.2, 204.8
	for _, m := range p.Plan() {
		p = apply(t, p, m)
	}
	require.Equal(t, map[uint8]int{1: 512, 2: 307, 3: 205}, counts(p))
}

// Without any weight all members have the same, so that something owns the shards.
func TestPlanWithoutWeights(t *testing.T) {
	p := cluster(t, 0, 0)
	require.Len(t, p.Plan(), 512)
	p = cluster(t, 0, 1)
	require.Len(t, p.Plan(), 1024)
	p = cluster(t, 1)
	require.Empty(t, p.Plan())
	p.Servers[0].State = Gone
	require.Empty(t, p.Plan(), "nothing can own them")
	p = cluster(t, 1, 1)
	p.Servers[0].State, p.Servers[1].State = Draining, Draining
	require.Len(t, p.Plan(), 512)
}

// random returns a placement of servers with any weights, states and shards.
func random(rng *rand.Rand) *Placement {
	p := &Placement{Cluster: [16]byte{9}, Epoch: 100 + rng.Uint32N(1000), Shards: make([]Shard, Shards)}
	owners := []uint8{0}
	for number := 1; number <= 255 && len(p.Servers) < 1+rng.IntN(12); number += 1 + rng.IntN(9) {
		s := server(number, uint8(rng.IntN(MaxWeight+1)))
		s.Boot, s.Number, s.State = rng.Uint64(), uint8(number), []State{Member, Member, Member, Draining, Gone}[rng.IntN(5)]
		if rng.IntN(2) == 0 {
			s.Zone = fmt.Sprint("z", rng.IntN(3))
		}
		if s.State != Gone {
			owners = append(owners, s.Number)
		}
		p.Servers = append(p.Servers, s)
	}
	for i := range p.Shards {
		p.Shards[i] = Shard{Owner: owners[rng.IntN(len(owners))], Epoch: 1 + rng.Uint32N(p.Epoch), Handed: rng.IntN(2) == 0}
	}
	return p
}

// fewest returns the fewest moves to shares that differ by less than one from the exact ones: tried with all ways
// to round.
func fewest(p *Placement) int {
	weights, total := make(map[uint8]int), 0
	for s := range p.Members() {
		if s.State == Member {
			weights[s.Number] = int(s.Weight)
		} else {
			weights[s.Number] = 0
		}
		total += weights[s.Number]
	}
	if total == 0 {
		for n := range weights {
			weights[n] = 1
			total++
		}
	}
	n, left, moves, saved := counts(p), Shards, n0(p), 0
	for number, w := range weights {
		down := Shards * w / total
		left -= down
		if n[number] > down {
			moves += n[number] - down
			if Shards*w%total > 0 {
				saved++
			}
		}
	}
	return moves - min(saved, left)
}

// n0 returns the number of shards without an owner.
func n0(p *Placement) int { return counts(p)[0] }

// A plan has the fewest moves, leads to the exact shares but for one, and stays the same plan while it is carried out,
// in whatever order.
func TestPlansOfAnyPlacement(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 1))
	for range 300 {
		p := random(rng)
		members := slices.Collect(p.Members())
		plan := p.Plan()
		require.Equal(t, plan, p.Plan(), "it depends on the placement alone")
		if len(members) == 0 {
			require.Empty(t, plan)
			continue
		}
		require.Len(t, plan, fewest(p))
		seen := make(map[int]bool)
		for _, m := range plan {
			require.False(t, seen[m.Shard])
			require.NotEqual(t, m.From, m.To)
			seen[m.Shard] = true
		}
		for len(plan) > 0 {
			rng.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
			some := plan[:1+rng.IntN(len(plan))]
			next := *p
			next.Shards = slices.Clone(p.Shards)
			for _, m := range some {
				next.Shards[m.Shard].Owner = m.To
			}
			p = &next
			rest := p.Plan()
			require.Len(t, rest, len(plan)-len(some))
			plan = rest
		}
		balanced(t, p)
	}
}

// balanced checks that each member has its share, up or down to a whole number.
func balanced(t *testing.T, p *Placement) {
	t.Helper()
	total, members := 0, 0
	weight := func(s *Server) int {
		if s.State == Draining {
			return 0
		}
		return int(s.Weight)
	}
	for s := range p.Members() {
		total += weight(s)
		members++
	}
	n := counts(p)
	for s := range p.Members() {
		exact := float64(Shards) / float64(members)
		if total > 0 {
			exact = float64(Shards*weight(s)) / float64(total)
		}
		require.Less(t, max(float64(n[s.Number])-exact, exact-float64(n[s.Number])), 1.0)
	}
	require.Zero(t, n[0])
}
