package dc

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const warmBlock = 300

// pairRig is an initiator, a target, and a plain queue pair between the same
// hosts.
type pairRig struct {
	client, server *rig.Host
	initiator      *dc.Initiator
	peer           *dc.Peer
	rc             *rig.RC
}

func newPair() (*pairRig, error) {
	c, s, err := rig.NewHosts()
	if err != nil {
		return nil, err
	}
	p := &pairRig{client: c, server: s}
	target, err := dc.NewTarget(dc.TargetConfig{PD: s.PD, GID: s.GID, AccessKey: 1})
	if err != nil {
		return nil, err
	}
	if p.initiator, err = dc.NewInitiator(dc.InitiatorConfig{PD: c.PD, GID: c.GID}); err != nil {
		return nil, err
	}
	if p.peer, err = p.initiator.Resolve(target.Address(), 1); err != nil {
		return nil, err
	}
	p.rc, err = rig.NewRC()
	return p, err
}

// warm times one request after the other to an attached target.
func (p *pairRig) warm(op dc.Op) (float64, error) {
	r := dc.Request{Op: op, Local: p.client.MR.SGE(0, rig.ReadSize), Remote: p.server.MR.Region().At(0)}
	var cs [1]dc.Completion
	one := func() error {
		_, n, err := p.initiator.PostPoll(p.peer, cs[:], 1000, r)
		for n == 0 && err == nil {
			n, err = p.initiator.PollSpin(cs[:], 1000)
		}
		return errors.Join(err, cs[0].Err)
	}
	if err := p.initiator.Attach(context.Background(), p.peer); err != nil {
		return 0, err
	}
	return rig.Timed(warmBlock, one)
}

// plain returns the same by a batch of one and one crossing.
func (p *pairRig) plain(op dc.Op) (float64, error) {
	g := p.rc
	var wcs [1]verbs.WC
	at, local := g.Peer.Region().At(0), g.MR.SGE(0, rig.ReadSize)
	return rig.Timed(warmBlock, func() error {
		if op == dc.Read {
			g.Batch.Read(1, verbs.Signaled, at, local)
		} else {
			g.Batch.Write(1, verbs.Signaled, at, local)
		}
		return g.Do(&wcs)
	})
}
