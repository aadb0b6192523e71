//go:build !linux

package main

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

func limits() facts { return facts{LocksAll: true, Files: limit{unlimited, unlimited}} }

func stateOf(string, uint64) fileState { return fileOK }

func gather(context.Context) (facts, error) { return facts{}, verbs.ErrUnsupported }
