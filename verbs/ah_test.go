//go:build linux

package verbs_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// A server answers whoever asks, by what the completion and the packet say of
// the sender.
func TestAnswerToAStranger(t *testing.T) {
	client, server := newPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	server.recv(t, 1, 100)
	client.recv(t, 1, 100)
	copy(client.mr.Bytes()[200:], "who are you?")
	ask := client.batch(t, 1)
	ask.SendTo(7, verbs.Signaled, dest(t, client, server), client.mr.SGE(200, 12))
	client.do(t, ask, 1)

	wc := server.wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, client.qp.Num(), wc.SrcQP())
	require.True(t, wc.HasGRH(), "RoCE has one in every packet")
	require.Zero(t, wc.SLID(), "RoCE has no local identifiers")
	port := server.qp.GID().Port
	grh := server.mr.Bytes()[:verbs.GRHSize]
	ah, err := server.pd.CreateAHFromWC(&wc, grh, port)
	require.NoError(t, err)
	defer func() { require.NoError(t, ah.Close()) }()
	copy(server.mr.Bytes()[200:], "a server")
	answer := server.batch(t, 1)
	answer.SendTo(8, verbs.Signaled, verbs.Dest{AH: ah, QPN: wc.SrcQP(), QKey: verbs.DefaultQKey}, server.mr.SGE(200, 8))
	server.do(t, answer, 1)
	got := client.wait(t, 1)[0]
	require.NoError(t, got.Err())
	require.Equal(t, "a server", string(client.mr.Bytes()[verbs.GRHSize:got.Len()]))

	t.Run("refused", func(t *testing.T) {
		_, err := server.pd.CreateAHFromWC(&wc, grh[:39], port)
		require.ErrorIs(t, err, verbs.ErrAttributes)
		_, err = server.pd.CreateAHFromWC(&wc, grh, 9)
		require.ErrorIs(t, err, verbs.ErrAttributes)
		_, err = server.pd.CreateAHFromWC(&verbs.WC{}, grh, port)
		require.ErrorIs(t, err, verbs.ErrAttributes, "the completion of a SEND")
	})
	// Packets of strangers: any bytes give a handle or an error.
	t.Run("rubbish", func(t *testing.T) {
		r := rand.New(rand.NewPCG(testseed.New(t), 0))
		for range 50 {
			bad := slices.Clone(grh)
			for range 1 + r.IntN(8) {
				bad[r.IntN(len(bad))] = byte(r.Uint32())
			}
			if r.IntN(2) == 0 { // a route header of IPv6
				bad[0], bad[20] = 0x60, 0
			}
			if ah, err := server.pd.CreateAHFromWC(&wc, bad, port); err == nil {
				require.NoError(t, ah.Close())
			}
		}
	})
}
