// Package testproc stops processes in tests.
package testproc
