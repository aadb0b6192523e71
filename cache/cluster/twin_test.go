package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// Of two servers with one id the member goes on, however often the other one beats, and the other one ends.
func TestTwin(t *testing.T) {
	m, p := draining(t)
	other := place.Life{ID: m.self.ID, Boot: m.self.Boot + 1}
	newcomer := &Member{cfg: m.cfg, self: place.Server{Life: other}, own: own.NewServer(m.cfg.own(), other, 0)}
	for beat := range int64(10) {
		v := &view{View: own.View{Placement: p, Beats: map[place.Life]int64{m.self.Life: 10 + 2*beat, other: 11 + 2*beat}}}
		require.NoError(t, m.twin(v), beat)
		if err := newcomer.twin(v); beat <= 2 {
			require.NoError(t, err, beat)
		} else {
			require.ErrorIs(t, err, ErrTaken, beat)
		}
		m.beats, newcomer.beats = v.Beats, v.Beats
	}
}
