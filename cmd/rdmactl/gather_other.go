//go:build !linux

package main

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

func gather(context.Context) (facts, error) { return facts{}, verbs.ErrUnsupported }
