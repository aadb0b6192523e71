package place

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func TestShardOf(t *testing.T) {
	n := make([]int, Shards)
	for i := range 1 << 16 {
		n[ShardOf(fmt.Appendf(nil, "user:%d", i))]++
	}
	for i, n := range n {
		require.InDelta(t, 64, n, 6*8, "shard %d", i)
	}
	require.Equal(t, []int{180, 923, 751}, []int{ShardOf(nil), ShardOf([]byte("a")), ShardOf([]byte("key"))}, "clients of all versions agree")
}

func TestMembers(t *testing.T) {
	p := cluster(t, 1, 1, 1)
	require.Equal(t, uint8(2), p.Number(Life{"h2", 1}))
	require.Zero(t, p.Number(Life{"h2", 2}))
	require.Zero(t, p.Number(Life{"h4", 1}))
	require.Equal(t, "h3", p.Member(3).ID)
	require.Nil(t, p.Member(4))
	q, err := p.TakeOver(Life{"h2", 1})
	require.NoError(t, err)
	require.Zero(t, q.Number(Life{"h2", 1}))
	require.Nil(t, q.Member(2))
	for range q.Members() {
		break
	}
	require.Equal(t, uint8(2), p.Number(Life{"h2", 1}), "a change leaves its receiver alone")
	require.Equal(t, p.Epoch+1, q.Epoch)
}

func TestJoin(t *testing.T) {
	p := cluster(t, 1, 1, 1)
	_, err := p.Join(server(2, 1))
	require.ErrorIs(t, err, ErrChange, "it is a member")
	next := server(2, 7)
	next.Boot = 2
	_, err = p.Join(next)
	require.ErrorIs(t, err, ErrChange, "its last life is")
	require.False(t, p.CanJoin(next.Life))
	require.True(t, p.CanJoin(Life{"h9", 1}))

	p, err = p.TakeOver(Life{"h2", 1})
	require.NoError(t, err)
	require.False(t, p.CanJoin(Life{"h2", 1}))
	_, err = p.Join(server(2, 1))
	require.ErrorIs(t, err, ErrChange, "it has ended")
	p, err = p.Join(next)
	require.NoError(t, err)
	next.Number, next.State = 2, Member
	require.Equal(t, next, *p.Member(2))
	require.Len(t, p.Servers, 3)
	require.NoError(t, p.Check())
}

func TestEnded(t *testing.T) {
	p := cluster(t, 1, 1)
	require.False(t, p.Ended(Life{"h2", 1}))
	require.False(t, p.Ended(Life{"h2", 2}))
	require.True(t, p.Ended(Life{"h2", 0}))
	require.False(t, p.Ended(Life{"h3", 0}))
	p, err := p.TakeOver(Life{"h2", 1})
	require.NoError(t, err)
	require.True(t, p.Ended(Life{"h2", 1}))
	require.False(t, p.Ended(Life{"h2", 2}))
}

// A number is used again when there are no others, and the lowest free one is taken.
func TestNumbers(t *testing.T) {
	p := cluster(t, 1, 1, 1)
	p.Servers = append(p.Servers[:1], p.Servers[2:]...)
	p, err := p.Join(server(9, 1))
	require.NoError(t, err)
	require.Equal(t, "h9", p.Member(2).ID)

	for i := 10; len(p.Servers) < MaxServers; i++ {
		p, err = p.Join(server(i, 1))
		require.NoError(t, err)
	}
	require.NoError(t, p.Check())
	_, err = p.Join(server(999, 1))
	require.ErrorIs(t, err, ErrFull)
	p, err = p.TakeOver(p.Member(77).Life)
	require.NoError(t, err)
	p, err = p.Join(server(999, 1))
	require.NoError(t, err)
	require.Equal(t, "h999", p.Member(77).ID)
	require.NoError(t, p.Check())
}

// Servers join as long as a message has space for their addresses.
func TestAddressesAreBounded(t *testing.T) {
	p := cluster(t, 1)
	for i := 2; ; i++ {
		s := server(i, 1)
		s.Address = strings.Repeat("a", MaxAddress)
		next, err := p.Join(s)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			require.Greater(t, i, 140)
			break
		}
		require.NoError(t, next.Check())
		p = next
	}
	p.Servers[0].Address = strings.Repeat("a", MaxAddress)
	for i := range p.Servers {
		p.Servers[i].State = Member
	}
	p.Servers = append(p.Servers, Server{Life: Life{"z", 1}, Number: 255, Address: strings.Repeat("b", MaxAddress), State: Member})
	require.ErrorIs(t, p.Check(), ErrPlacement)
}

func TestTakeOver(t *testing.T) {
	p := cluster(t, 1, 1, 1)
	for _, m := range p.Plan() {
		p = apply(t, p, m)
	}
	q, err := p.TakeOver(Life{"h1", 1})
	require.NoError(t, err)
	require.Equal(t, map[uint8]int{2: 512, 3: 512}, counts(q))
	for i := range q.Shards {
		if p.Shards[i].Owner == 1 {
			require.Equal(t, q.Epoch, q.Shards[i].Epoch)
			require.False(t, q.Shards[i].Handed)
		} else {
			require.Equal(t, p.Shards[i], q.Shards[i], "others keep what they have")
		}
	}
	_, err = q.TakeOver(Life{"h1", 1})
	require.ErrorIs(t, err, ErrChange, "it is gone")
	_, err = q.TakeOver(Life{"h2", 2})
	require.ErrorIs(t, err, ErrChange, "another life")
	q, err = q.TakeOver(Life{"h2", 1})
	require.NoError(t, err)
	_, err = q.TakeOver(Life{"h3", 1})
	require.ErrorIs(t, err, ErrChange, "the last one")
	require.NoError(t, q.Check())

	// What a takeover gives is the dead one's alone, also while others wait for moves.
	q, err = cluster(t, 1, 1, 1).TakeOver(Life{"h2", 1})
	require.NoError(t, err)
	require.Equal(t, map[uint8]int{1: 1024}, counts(q))
}

func TestSucceed(t *testing.T) {
	p := cluster(t, 1, 1)
	p, err := p.Move(Life{"h2", 1}, 5)
	require.NoError(t, err)
	next := server(1, 3)
	_, err = p.Succeed(next)
	require.ErrorIs(t, err, ErrChange, "the same life")
	next.Boot = 0
	_, err = p.Succeed(next)
	require.ErrorIs(t, err, ErrChange, "a former life")
	_, err = p.Succeed(server(3, 1))
	require.ErrorIs(t, err, ErrChange, "no life at all")
	next.Boot = 2
	q, err := p.Succeed(next)
	require.NoError(t, err)
	require.Equal(t, uint8(1), q.Number(Life{"h1", 2}))
	require.Equal(t, uint8(3), q.Member(1).Weight)
	require.Equal(t, Shard{1, q.Epoch, false}, q.Shards[4])
	require.Equal(t, p.Shards[5], q.Shards[5])
	require.NoError(t, q.Check())

	q, err = p.TakeOver(Life{"h1", 1})
	require.NoError(t, err)
	_, err = q.Succeed(next)
	require.ErrorIs(t, err, ErrChange, "it is gone")
}

func TestMove(t *testing.T) {
	p := cluster(t, 1, 1)
	q, err := p.Move(Life{"h2", 1}, 5)
	require.NoError(t, err)
	require.Equal(t, Shard{2, p.Epoch + 1, true}, q.Shards[5])
	require.Equal(t, p.Shards[6], q.Shards[6])
	_, err = q.Move(Life{"h2", 1}, 5)
	require.ErrorIs(t, err, ErrChange, "it has it")
	_, err = q.Move(Life{"h1", 2}, 5)
	require.ErrorIs(t, err, ErrChange, "no member")
}

func TestDrain(t *testing.T) {
	p := cluster(t, 1, 1)
	_, err := p.Drain(Life{"h3", 1}, true)
	require.ErrorIs(t, err, ErrChange)
	p, err = p.Drain(Life{"h2", 1}, true)
	require.NoError(t, err)
	require.Equal(t, Draining, p.Member(2).State)
	require.NotZero(t, p.Number(Life{"h2", 1}), "it is a member still")
	p, err = p.Drain(Life{"h2", 1}, false)
	require.NoError(t, err)
	require.Equal(t, Member, p.Member(2).State)
}

// Whatever changes come after each other, the placement stays whole.
func TestChangesKeepItWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 2))
	p := cluster(t, 1)
	boots := make(map[int]uint64)
	for range 500 {
		i := 1 + rng.IntN(5)
		s := server(i, uint8(rng.IntN(4)))
		s.Boot = 2 + boots[i]
		life := s.Life
		life.Boot -= uint64(rng.IntN(3))
		var next *Placement
		var err error
		switch rng.IntN(6) {
		case 0, 1:
			next, err = p.Join(s)
			if err == nil {
				boots[i]++
			}
		case 2:
			next, err = p.TakeOver(life)
		case 3:
			next, err = p.Succeed(s)
			if err == nil {
				boots[i]++
			}
		case 4:
			next, err = p.Move(life, rng.IntN(Shards))
		case 5:
			next, err = p.Drain(life, rng.IntN(2) == 0)
		}
		if err != nil {
			require.Nil(t, next)
			continue
		}
		require.NoError(t, next.Check())
		require.Equal(t, p.Epoch+1, next.Epoch)
		for k := range next.Shards {
			if next.Shards[k] != p.Shards[k] {
				require.Equal(t, next.Epoch, next.Shards[k].Epoch, "an owner has an epoch of its own")
			}
		}
		p = next
	}
}

func TestOwned(t *testing.T) {
	p := New([16]byte{1}, Shards, Server{Life: Life{"a", 1}, Address: "a:1", Weight: 1})
	p, err := p.Join(Server{Life: Life{"b", 1}, Address: "b:1", Weight: 1})
	require.NoError(t, err)
	p, err = p.Move(Life{"b", 1}, 7)
	require.NoError(t, err)
	require.Equal(t, [3]int{0, Shards - 1, 1}, [3]int{p.Owned(0), p.Owned(1), p.Owned(2)})
}
