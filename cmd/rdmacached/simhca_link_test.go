//go:build simhca && linux && cgo

package main

import (
	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testproc"
)

func init() { testproc.Awaited = simhca.Awaited }
