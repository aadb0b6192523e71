// Package srd is reliable datagrams, out of order, over many network paths, without
// connections: what EFA's SRD does in hardware, in software over UD queue pairs.
package srd
