// Package integrations runs QUIC over package srd. It is a module of its own, so that quic-go stays out
// of the build list of goverbs' users; quic.go is to be copied.
package integrations
