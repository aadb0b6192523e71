//go:build linux

package verbs_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// A server replies to any sender, by what the completion and the packet say of
// the sender.
func TestReplyToAnUnknownSender(t *testing.T) {
	client, server := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	server.Recv(t, 1, 100)
	client.Recv(t, 1, 100)
	copy(client.MR.Bytes()[200:], "who are you?")
	ask := client.Batch(t, 1)
	ask.SendTo(7, verbs.Signaled, rig.Dest(t, client, server), client.MR.SGE(200, 12))
	client.Do(t, ask, 1)

	wc := server.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, client.QP.Num(), wc.SrcQP())
	require.True(t, wc.HasGRH(), "RoCE has one in every packet")
	require.Zero(t, wc.SLID(), "RoCE has no local identifiers")
	port := server.QP.GID().Port
	grh := server.MR.Bytes()[:verbs.GRHSize]
	ah, err := server.PD.CreateAHFromWC(&wc, grh, port)
	require.NoError(t, err)
	defer func() { require.NoError(t, ah.Close()) }()
	copy(server.MR.Bytes()[200:], "a server")
	answer := server.Batch(t, 1)
	answer.SendTo(8, verbs.Signaled, verbs.Destination{AH: ah, QPN: wc.SrcQP(), QKey: verbs.DefaultQKey}, server.MR.SGE(200, 8))
	server.Do(t, answer, 1)
	got := client.Wait(t, 1)[0]
	require.NoError(t, got.Err())
	require.Equal(t, "a server", string(client.MR.Bytes()[verbs.GRHSize:got.Len()]))

	t.Run("refused", func(t *testing.T) {
		_, err := server.PD.CreateAHFromWC(&wc, grh[:39], port)
		require.ErrorIs(t, err, verbs.ErrAttributes)
		_, err = server.PD.CreateAHFromWC(&wc, grh, 9)
		require.ErrorIs(t, err, verbs.ErrAttributes)
		_, err = server.PD.CreateAHFromWC(&verbs.WC{}, grh, port)
		require.ErrorIs(t, err, verbs.ErrAttributes, "the completion of a SEND")
	})
	// Packets of unknown senders: any bytes give a handle or an error.
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
			if ah, err := server.PD.CreateAHFromWC(&wc, bad, port); err == nil {
				require.NoError(t, ah.Close())
			}
		}
	})
}
