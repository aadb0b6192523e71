// Package integrations runs net/http and gRPC over package stream, and QUIC over package srd. It is a
// module of its own, so that gRPC and quic-go stay out of the build list of goverbs' users. Copy stream.go
// or quic.go.
//
// Servers of net/http and gRPC need nothing of it: both serve a [stream.Listener] as it is.
package integrations
