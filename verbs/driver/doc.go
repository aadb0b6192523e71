// Package driver is for transports and protocols that are built on package verbs: it gives them
// what a program does not need, such as the C objects behind a queue pair, or the right to keep
// other users off its send queue. It may change at any time.
//
// The functions work on the private state of verbs' types. They are a package of their own, and
// not methods, so that a program's author does not meet them. A call goes through a function
// variable; none is on the path of a request that succeeds.
package driver
