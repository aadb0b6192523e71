//go:build !linux

package main

import "runtime"

func yieldCPU() { runtime.Gosched() }
