package dc

import (
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

const (
	attrRTR = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestReadAtomic | verbs.AttrMinRNRTimer
	attrRTS = verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxReadAtomic
)

// rnrTimer is the code of the pause that a responder without a receive asks for:
// 0.64 ms.
const rnrTimer = 12

// responderStep brings a queue pair to RTR towards the one that m names, whose
// first packet has that number. A responder context stays there: it sends no
// requests, and so is ready one transition earlier.
func responderStep(c *Control, m *wire.Message, psn uint32, class uint8) verbs.ModifyStep {
	return verbs.ModifyStep{Mask: attrRTR, Attr: verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: min(verbs.MTU(m.MTU), c.mtu), DestQPN: m.QPN, RQPSN: psn,
		AH:                verbs.AHAttr{GID: verbs.GID(m.From.GID), DLID: m.From.LID, SGIDIndex: c.gid.Index, Port: c.gid.Port, TrafficClass: class},
		MaxDestReadAtomic: c.maxReads, MinRNRTimer: rnrTimer,
	}}
}

// requesterStep makes it send, its first packet having that number.
func requesterStep(c *Control, cfg *InitiatorConfig, psn uint32) verbs.ModifyStep {
	const (
		retries = 6 // Soft-RoCE takes 7 for without end
		// A target without a receive is left for others after some 5 ms.
		rnrRetries = 6
	)
	return verbs.ModifyStep{Mask: attrRTS, Attr: verbs.QPAttr{
		State: verbs.StateRTS, SQPSN: psn, Timeout: verbs.AckTimeoutFor(cfg.AckTimeout), RetryCount: retries, RNRRetry: rnrRetries,
		MaxReadAtomic: c.maxInitReads,
	}}
}
