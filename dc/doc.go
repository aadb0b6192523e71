// Package dc reaches any number of targets through a few queue pairs.
package dc
