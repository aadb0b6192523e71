package dc

import (
	"github.com/goverbs/goverbs/verbs"
)

const (
	attrRTR = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestReadAtomic | verbs.AttrMinRNRTimer
	attrRTS = verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCount | verbs.AttrRNRRetry | verbs.AttrMaxReadAtomic
)

// responderStep brings a queue pair to RTR towards the one that m names, whose
// first packet has that number. A responder context stays there: it sends no
// requests, and so is ready one transition earlier.
func responderStep(c *control, m *message, psn uint32) verbs.ModifyStep {
	return verbs.ModifyStep{Mask: attrRTR, Attr: verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: min(m.mtu, c.mtu), DestQPN: m.qpn, RQPSN: psn,
		AH:                verbs.AHAttr{GID: m.from.gid, DLID: m.from.lid, SGIDIndex: c.gid.Index, Port: c.gid.Port},
		MaxDestReadAtomic: c.maxReads, MinRNRTimer: 12,
	}}
}

// requesterStep makes it send, its first packet having that number.
func requesterStep(c *control, cfg *InitiatorConfig, psn uint32) verbs.ModifyStep {
	// Soft-RoCE takes 7 for without end.
	const retries = 6
	return verbs.ModifyStep{Mask: attrRTS, Attr: verbs.QPAttr{
		State: verbs.StateRTS, SQPSN: psn, Timeout: verbs.AckTimeoutFor(cfg.AckTimeout), RetryCount: retries, RNRRetry: 7,
		MaxReadAtomic: c.maxInitReads,
	}}
}
