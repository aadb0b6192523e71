package lockoffload_test

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// A target with an agent beside its server.
func ExampleNewAgent() {
	var pd *verbs.PD
	var region *lockoffload.Region

	agent, err := lockoffload.NewAgent(lockoffload.AgentConfig{PD: pd, Region: region})
	if err != nil {
		return
	}
	defer agent.Close()

	// For each client, and again when it comes back under the same number:
	accept := func(client uint64, remote verbs.Endpoint) (*verbs.QP, error) {
		qp, err := pd.CreateQP(agent.QPConfig())
		if err != nil {
			return nil, err
		}
		if err := agent.Attach(client, qp); err != nil {
			return nil, errors.Join(err, qp.Close())
		}
		return qp, qp.Connect(remote, verbs.ConnectConfig{})
	}
	_ = accept
}

// A transfer between two records, if neither was changed meanwhile: one round
// trip.
func ExampleCaller_Do() {
	var pd *verbs.PD
	var in lockoffload.SessionInfo
	var connect func(ctx context.Context, client uint64) (*verbs.QP, *verbs.CQ, error)

	ctx := context.Background()
	var id [8]byte
	rand.Read(id[:])
	client := binary.LittleEndian.Uint64(id[:])
	caller, err := lockoffload.NewCaller(ctx, lockoffload.CallerConfig{
		PD: pd, Layout: in.Layout, Client: client,
		Connect: func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) { return connect(ctx, client) },
	})
	if err != nil {
		return
	}
	defer caller.Close()

	ch := lockoffload.Chain{Slot: 7, Tries: 20, Accesses: []lockoffload.Access{
		{Kind: lockoffload.AccessCompare, Record: 0, Version: 41},
		{Kind: lockoffload.AccessCompare, Record: 1, Version: 8},
		{Kind: lockoffload.AccessWrite, Record: 0, Data: []byte("balance 60")},
		{Kind: lockoffload.AccessWrite, Record: 1, Data: []byte("balance 140")},
	}}
	switch res, err := caller.Do(ctx, &ch); {
	case errors.Is(err, lockoffload.ErrVersionMismatch):
		fmt.Println("changed meanwhile: versions", ch.Accesses[0].Version, ch.Accesses[1].Version)
	case errors.Is(err, lockoffload.ErrNotAcquired), errors.Is(err, lockoffload.ErrBusy):
		fmt.Println("nothing was changed")
	case errors.Is(err, lockoffload.ErrOutcomeUnknown):
		fmt.Println("look what the records have now")
	case err == nil:
		fmt.Println("done at the try", res.Tries)
	}
}
