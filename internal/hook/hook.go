// Package hook holds functions of package verbs over the private state of its types. Package
// verbs sets them when it is initialized. The packages that document them assert their types when
// they are.
package hook

// Of package verbs/driver.
var AdoptDevice, WrapDevice, Wrap, SoftRoCE, ResetRaces,
	FindGIDAgain, FollowGID, CreateCQFor, RawQP, RawCQ,
	ModifyRaw, ModifySteps, InitStep, ActivateWith, Fail,
	OnEnd, SetPeer, KeepAlive, OwnSends, SignalsAll, Unfinished,
	PrepareLink, Connected, AHAttr, FlushedWC, Gather,
	Clock, Limit, Times, DispatchOwn, KeepsOpen any

// Of package verbs/experimental.
var RegisterDMABuf, RegisterAddressSpace, SGEOf, Prefetch, AllocDeviceMemory,
	RegisterDeviceMemory, AllocNullMR, SetRate, SetUDPSourcePort, SetLAGPort,
	LAGPort, Flush, Sender, CreateAHFromWCEx, AHNumber,
	CreateFlow any
