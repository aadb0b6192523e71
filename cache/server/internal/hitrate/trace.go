package main

import (
	"math"
	"math/rand/v2"
)

// mix is a trace. Values have lengths from 100 bytes on, evenly by their logarithms, and keys have the
// probabilities of Zipf's law.
type mix struct {
	Name    string
	Memory  int // bytes
	Longest float64
	Keys    int
	Then    float64 // halfway all keys are others, with values as long at most; 0: they stay
}

var mixes = []mix{
	{"64MiB_10KB", 64 << 20, 10e3, 120_000, 0},
	{"64MiB_100KB", 64 << 20, 100e3, 60_000, 0},
	{"64MiB_900KB", 64 << 20, 900e3, 20_000, 0},
	{"128MiB_100KB", 128 << 20, 100e3, 80_000, 0},
	{"256MiB_900KB", 256 << 20, 900e3, 30_000, 0},
	{"64MiB_1KB", 64 << 20, 1e3, 250_000, 0},
	{"64MiB_10KB_then_100KB", 64 << 20, 10e3, 60_000, 100e3},
}

// record is a key with the length of its value.
type record struct{ key, size int }

// batch is how many keys are got together, before those that were missing are set.
const batch = 32

// side is a cache.
type side interface {
	// get reports which records are there.
	get(records []record, found []bool) error
	set(records []record) error
}

// result is what became of the trace in one cache.
type result struct {
	HitRate float64 `json:"hit_rate"` // percent, of the second half of the gets of each phase
	// Passes is how many passes over the keys a phase begins with until a tenth of a pass has 90 % of
	// the steady hit rate.
	Passes float64 `json:"passes"`
}

// perKey is how many gets for each key a phase has.
const perKey = 5

// run sends the trace to all sides. Of a mix that changes, results are of what comes after the change.
func (m *mix) run(seed uint64, sides ...side) ([]result, error) {
	t := trace{rng: rand.New(rand.NewPCG(seed, 2))}
	t.fill(m.Keys, m.Longest)
	results, err := t.phase(sides)
	if err == nil && m.Then > 0 {
		t.first = m.Keys
		t.fill(m.Keys, m.Then)
		results, err = t.phase(sides)
	}
	return results, err
}

type trace struct {
	rng   *rand.Rand
	zipf  *rand.Zipf
	first int // key
	sizes []int
}

func (t *trace) fill(keys int, longest float64) {
	t.sizes = make([]int, keys)
	for i := range t.sizes {
		t.sizes[i] = int(100 * math.Pow(longest/100, t.rng.Float64()))
	}
	t.zipf = rand.NewZipf(t.rng, 1.05, 10, uint64(keys-1))
}

func (t *trace) next() record {
	k := int(t.zipf.Uint64() * 2654435761 % uint64(len(t.sizes)))
	return record{t.first + k, t.sizes[k]}
}

// phase sends perKey gets for each key, and counts hits by tenths of a pass.
func (t *trace) phase(sides []side) ([]result, error) {
	const tenths = 10 * perKey
	hits := make([][tenths]float64, len(sides))
	var some [batch]record
	var found [batch]bool
	each := (len(t.sizes)/10 + batch - 1) / batch // batches of a tenth
	for tenth := range tenths {
		for range each {
			for i := range some {
				some[i] = t.next()
			}
			for s, one := range sides {
				if err := one.get(some[:], found[:]); err != nil {
					return nil, err
				}
				var missing []record
				asked := make(map[int]bool, batch)
				for i, ok := range found {
					switch {
					case ok:
						hits[s][tenth]++
					case !asked[some[i].key]:
						asked[some[i].key] = true
						missing = append(missing, some[i])
					}
				}
				if err := one.set(missing); err != nil {
					return nil, err
				}
			}
		}
	}
	results := make([]result, len(sides))
	for s := range sides {
		sum := 0.0
		for _, n := range hits[s][tenths/2:] {
			sum += n
		}
		steady := sum / (tenths - tenths/2)
		results[s].HitRate = 100 * steady / float64(each*batch)
		for tenth, n := range hits[s] {
			if n >= 0.9*steady {
				results[s].Passes = float64(tenth+1) / 10
				break
			}
		}
	}
	return results, nil
}
