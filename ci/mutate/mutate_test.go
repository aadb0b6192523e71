package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every list of the module can be applied: none has been left behind by the code.
func TestListsFitTheCode(t *testing.T) {
	all, err := collect([]string{"../.."}, regexp.MustCompile(""))
	require.NoError(t, err)
	names := map[string]bool{}
	for i := range all {
		_, err := all[i].apply()
		require.NoError(t, err, all[i].dir)
		name := all[i].dir + ": " + all[i].name
		require.False(t, names[name], "%s twice", name)
		names[name] = true
		_, err = regexp.Compile(all[i].test)
		require.NoError(t, err, name)
	}
}

func TestParse(t *testing.T) {
	got, err := parse("# about\n\nname: a: b\nfile: x.go\ntest: TestA|TestB # both\nold:\n\tif a {\n\n\tb()\nnew:\n\tif c {\n\nname: two\nfile: y.go\npackage: ..\nold:\nz\nnew:\n---\n# the end\n")
	require.NoError(t, err)
	require.Equal(t, []mutation{
		{name: "a: b", file: "x.go", test: "TestA|TestB", old: "\tif a {\n\n\tb()", new: "\tif c {", lineNum: 3},
		{name: "two", file: "y.go", pkg: "..", old: "z", lineNum: 13},
	}, got)
	got, err = parse("tags: a,b\nname: one\nfile: f\nold:\nx\nnew:\n---\nenv: A=1 B=2\nname: two\nfile: f\nold:\nx\nnew:\ny\nenv: A=3\n---\nname: three\nfile: f\nold:\nx\nnew:\n")
	require.NoError(t, err)
	var under []conditions
	for _, m := range got {
		under = append(under, m.conditions)
	}
	require.Equal(t, []conditions{{"a,b", ""}, {"a,b", "A=3"}, {"a,b", "A=1 B=2"}}, under)
	for _, bad := range []string{"name: a\nfile: f\n", "name: a\nold:\nx\nnew:\ny\n", "file: f\nold:\nx\n", "stray", "name: a\nfile: f\nold:\nx\nnew:\nx\n"} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
}

// A package of its own: changes that its test sees, one that it does not, one that
// has it hang, one that does not compile, and one that fits nowhere.
func TestTrials(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("m.go", "package m\n\nfunc Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n\nvar unseen = 1\n")
	write("m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestMax(t *testing.T) {\n\tif Max(1, 2) != 2 || Max(2, 1) != 2 {\n\t\tt.Error(\"not the greater one\")\n\t}\n}\n")
	write("mutations.txt", `name: less
file: m.go
old:
	if a > b {
new:
	if a < b {

name: unseen
file: m.go
old:
unseen = 1
new:
unseen = 2

name: for ever
file: m.go
test: TestMax
old:
	return b
new:
	for {
	}

name: no Go
file: m.go
old:
	return b
new:
	return c

name: nowhere
file: m.go
old:
	return d
new:
`)
	all, err := collect([]string{dir}, regexp.MustCompile(""))
	require.NoError(t, err)
	require.Len(t, all, 5)
	tr := &trial{tmp: t.TempDir(), limit: 2 * time.Second}
	require.NoError(t, tr.unchanged(t.Context(), all))
	var got []result
	for i := range all {
		got = append(got, tr.try(t.Context(), i, &all[i]))
	}
	require.True(t, got[0].caught)
	require.Equal(t, "TestMax", got[0].by)
	require.Equal(t, result{took: got[1].took}, got[1], "it survives")
	require.True(t, got[2].caught)
	require.Equal(t, "TestMax does not end", got[2].by)
	require.ErrorContains(t, got[3].err, "undefined: c")
	require.ErrorContains(t, got[4].err, "0 times")
	require.Error(t, summary(got))
	require.NoError(t, summary(got[:1]))
	_, err = os.Stat(filepath.Join(dir, "m.test"))
	require.ErrorIs(t, err, os.ErrNotExist)

	write("m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestMax(t *testing.T) { t.Error(\"always\") }\n")
	require.ErrorContains(t, tr.unchanged(t.Context(), all[:1]), "fails without any change")
	all[0].test = "TestNothing"
	require.ErrorContains(t, tr.unchanged(t.Context(), all[:1]), "no test matches")
}

// A change that only a test with a tag sees, where the environment asks for it.
func TestConditions(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc One() int { return 1 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestNothing(t *testing.T) {}\n",
		"tagged_test.go": "//go:build special\n\npackage m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestOne(t *testing.T) {\n" +
			"\tif os.Getenv(\"LOOK\") == \"1\" && One() != 1 {\n\t\tt.Error(\"not one\")\n\t}\n}\n",
		"mutations.txt": "tags: special\nenv: LOOK=1\nname: looked at\nfile: m.go\nold:\nreturn 1\nnew:\nreturn 2\n" +
			"name: not looked at\nenv: LOOK=0\nfile: m.go\nold:\nreturn 1\nnew:\nreturn 2\n" +
			"name: not built\ntags:\nfile: m.go\nold:\nreturn 1\nnew:\nreturn 2\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	all, err := collect([]string{dir}, regexp.MustCompile(""))
	require.NoError(t, err)
	tr := &trial{tmp: t.TempDir(), limit: time.Minute}
	require.NoError(t, tr.unchanged(t.Context(), all))
	var caught []bool
	for i := range all {
		r := tr.try(t.Context(), i, &all[i])
		require.NoError(t, r.err)
		caught = append(caught, r.caught)
	}
	require.Equal(t, []bool{true, false, false}, caught)
}
