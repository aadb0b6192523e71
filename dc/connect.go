package dc

import (
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

const (
	attrRTR = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestReadAtomic | verbs.AttrMinRNRTimer
	attrRTS = verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxReadAtomic
)

// rnrTimer is the code of the pause that a responder without a receive asks for:
// 0.64 ms.
const rnrTimer = 12

// toResponder makes a step, which is zero or one of its own, that brings a queue pair to RTR,
// from the local GID towards the one that m names. A responder context stays there: it sends
// no requests, and so is ready one transition earlier.
func toResponder(step *driver.ModifyStep, c *Control, gid verbs.GIDEntry, m *wire.Message, class uint8) {
	a := &step.Attr
	step.Mask, a.State, a.PathMTU, a.DestQPN, a.RQPSN = attrRTR, verbs.StateRTR, min(verbs.MTU(m.MTU), c.mtu), m.QPN, m.PSN
	a.AH.GID, a.AH.DLID, a.AH.SGIDIndex, a.AH.Port, a.AH.TrafficClass = verbs.GID(m.From.GID), m.From.LID, gid.Index, gid.Port, class
	a.MaxDestReadAtomic, a.MinRNRTimer = c.maxReads, rnrTimer
}

// requesterStep makes it send, its first packet having that number.
func requesterStep(c *Control, cfg *InitiatorConfig, psn uint32) driver.ModifyStep {
	const (
		retries = 6 // Soft-RoCE takes 7 for without end
		// A target without a receive is left for others after some 5 ms.
		rnrRetries = 6
	)
	return driver.ModifyStep{Mask: attrRTS, Attr: verbs.QPAttr{
		State: verbs.StateRTS, SQPSN: psn, Timeout: verbs.AckTimeoutFor(cfg.AckTimeout), RetryCount: retries, RNRRetry: rnrRetries,
		MaxReadAtomic: c.maxInitReads,
	}}
}
