// Package testproc starts and stops processes of tests.
package testproc
