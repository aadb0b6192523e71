// Package version says what a command was built from.
package version

import (
	"runtime/debug"
	"strings"
)

// Asked reports whether arguments begin with -version.
func Asked(args []string) bool {
	return len(args) > 0 && (args[0] == "-version" || args[0] == "--version")
}

// Of returns one line about the running program, which -version of each command prints: the version
// of the module, the revision, Go and the system, and what was unusual about the build.
func Of(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return command + " of an unknown version: it was built without modules"
	}
	return describe(command, info)
}

func describe(command string, info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	module := info.Main.Version
	if module == "" {
		module = "(devel)" // as in a test
	}
	parts := []string{command + " " + module}
	if revision := set["vcs.revision"]; revision != "" {
		text := "revision " + revision[:min(12, len(revision))] + " of " + set["vcs.time"]
		if set["vcs.modified"] == "true" {
			text += " and changes"
		}
		parts = append(parts, text)
	}
	parts = append(parts, info.GoVersion+" "+set["GOOS"]+"/"+set["GOARCH"])
	if set["CGO_ENABLED"] == "0" {
		parts = append(parts, "without cgo, so without RDMA")
	}
	if tags := set["-tags"]; tags != "" {
		parts = append(parts, "tags "+tags)
	}
	return strings.Join(parts, ", ")
}
