// Package pfc brings a pacer what the counters of priority flow control say (IEEE
// 802.1Qbb): how often the link partner asked this host to pause, and how often this
// host asked it. It is apart from package pacer because of what it imports.
//
//	source, err := pfc.Netdev("enp1s0f0np0", 3) // the priority of RDMA traffic
//	go pfc.Follow(ctx, p, source, pfc.Config{})
//
// A pause that arrives means that what this host sends has nowhere to go: nothing new is
// granted until none has arrived for a while. A pause that this host sends means that
// responses come faster than it absorbs them: the threshold, where the pacer finds it
// itself, shrinks to half at once instead of by delay.
//
// Counters are read every 10 ms and a pause lasts microseconds. So this is no brake for
// a single pause, it is for a link that is paused again and again.
package pfc
