package main

import (
	"slices"
	"strings"
)

// plainEnv are the variables that the command has even with -clean-env.
var plainEnv = []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"}

// environ returns the command's environment: the host's, or with clean the little of
// it that programs take for granted; then what each -env says.
func environ(host []string, clean bool, choices []string) []string {
	env := slices.Clone(host)
	if clean {
		env = slices.DeleteFunc(env, func(e string) bool { return !slices.Contains(plainEnv, variable(e)) })
	}
	return append(env, chosen(host, choices)...)
}

// chosen returns what -env says: NAME=VALUE sets a variable, NAME takes the host's,
// PREFIX* all those of the host that begin like that.
func chosen(host, choices []string) []string {
	var env []string
	for _, c := range choices {
		if strings.Contains(c, "=") {
			env = append(env, c)
			continue
		}
		prefix, many := strings.CutSuffix(c, "*")
		for _, e := range host {
			if n := variable(e); n == c || many && strings.HasPrefix(n, prefix) {
				env = append(env, e)
			}
		}
	}
	return env
}

// variable returns the name in NAME=VALUE.
func variable(e string) string {
	n, _, _ := strings.Cut(e, "=")
	return n
}
