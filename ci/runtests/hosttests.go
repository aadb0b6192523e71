package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/astnames"
)

// withoutHostTests returns the command of a package's test program without the tests that the unit
// tests have run on the host. The sanitizers see them, and what a package of the kernel's
// routes sees without a device depends on the kernel.
func (r *runner) withoutHostTests(argv []string, pkg string) ([]string, error) {
	if r.o.sanitize || slices.Contains(hostPackages, pkg) {
		return argv, nil
	}
	tests, err := hostTests(filepath.Join(r.root, pkg))
	if err != nil || len(tests) == 0 {
		return argv, err
	}
	const flag = "-test.skip="
	skip := "^(" + strings.Join(tests, "|") + ")$"
	argv = slices.Clone(argv)
	if i := slices.IndexFunc(argv, func(a string) bool { return strings.HasPrefix(a, flag) }); i >= 0 {
		argv[i] += "|" + skip
		return argv, nil
	}
	return append(argv, flag+skip), nil
}

// onDevice reports whether a name is one by which tests come to a device: of the lab, of a test
// rig, of the list of devices, or of the simulated ones. A test that looks at the environment, or
// is skipped somewhere, may be skipped on the host.
func onDevice(name string) bool {
	pkg, name, _ := strings.Cut(name, ".")
	return pkg == "lab" || pkg == "rig" || name == "Devices" || name == "Getenv" || pkg == "skipped" || strings.Contains(name, "Simulated")
}

// hostTests returns the tests in a folder that use no device, sorted: nothing that they mention,
// and nothing that this mentions, is one of those names. They run on the host. A method
// counts as a part of its type, so some tests are taken for device tests that are none.
func hostTests(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	mentions := make(map[string][]string) // by what is declared
	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		addMentions(mentions, file)
	}
	found := make(map[string]bool)
	for grown := true; grown; {
		grown = false
		for name, others := range mentions {
			if !found[name] && (onDevice(name) || slices.ContainsFunc(others, func(o string) bool { return found[o] || onDevice(o) })) {
				found[name], grown = true, true
			}
		}
	}
	var tests []string
	for name := range mentions {
		_, test, _ := strings.Cut(name, ".")
		kind := slices.ContainsFunc(words("Test Example Fuzz"), func(k string) bool { return strings.HasPrefix(test, k) })
		if kind && test != "TestMain" && !found[name] {
			tests = append(tests, test)
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// addMentions adds the declarations of a file, with the names in each, all behind their package's.
func addMentions(mentions map[string][]string, file *ast.File) {
	own := file.Name.Name + "."
	imported := make(map[string]bool)
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		imported[path.Base(p)] = true
	}
	// The name behind a dot is a field, a method, or another package's.
	var add func(declared string, n ast.Node)
	add = func(declared string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] {
					mentions[own+declared] = append(mentions[own+declared], x.Name+"."+n.Sel.Name)
				} else {
					if strings.HasPrefix(n.Sel.Name, "Skip") {
						mentions[own+declared] = append(mentions[own+declared], "skipped."+n.Sel.Name)
					}
					add(declared, n.X)
				}
				return false
			case *ast.Ident:
				mentions[own+declared] = append(mentions[own+declared], own+n.Name)
			}
			return true
		})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(cmp.Or(astnames.Receiver(d), d.Name.Name), d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						add(n.Name, s)
					}
				case *ast.TypeSpec:
					add(s.Name.Name, s)
				}
			}
		}
	}
}
