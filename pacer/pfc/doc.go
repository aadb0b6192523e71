// Package pfc controls a pacer by the counters of priority flow control (IEEE 802.1Qbb):
// how often the link partner asked this host to pause, and how often this host asked the
// partner. It is separate from package pacer because of its imports.
//
//	source, err := pfc.Netdev("enp1s0f0np0", 3) // the priority of RDMA traffic
//	go pfc.Watch(ctx, p, source, pfc.Config{})
//
// A pause that arrives means that what this host sends has nowhere to go. The pacer then
// grants nothing new until none has arrived for a while. A pause that this host sends means
// that responses come faster than it absorbs them. The threshold, if the pacer finds it
// itself, is then halved at once, instead of by delay.
//
// Counters are read every 10 ms, and a pause lasts microseconds. So this does not brake for a
// single pause. It is for a link that is paused again and again.
package pfc
