//go:build !linux

package main

func setLimits() {}
