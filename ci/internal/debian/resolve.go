package debian

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// packages are those of an index, one version of each.
type packages struct {
	byName   map[string]*Package
	provides map[string][]*Package
}

// named returns the packages of those names, or those that provide them:
// librdmacm1 is librdmacm1t64 since Debian 13.
func (all *packages) named(names []string) ([]*Package, error) {
	var out []*Package
	for _, n := range names {
		p := all.choose([]string{n}, nil)
		if p == nil {
			return nil, fmt.Errorf("%w: %s", ErrNoPackage, n)
		}
		out = append(out, p)
	}
	return out, nil
}

// closure returns the named packages, the essential ones, which packages do not name
// among their dependencies, and all that these depend on, sorted by name. Versions
// are not compared: a release is consistent, and has one of each.
func (all *packages) closure(names []string) ([]*Package, error) {
	chosen := make(map[string]*Package)
	var open []*Package
	add := func(p *Package) {
		if chosen[p.Name] == nil {
			chosen[p.Name] = p
			open = append(open, p)
		}
	}
	named, err := all.named(names)
	if err != nil {
		return nil, err
	}
	// First all that was asked for: they decide between alternatives.
	for _, p := range named {
		add(p)
	}
	for _, p := range all.byName {
		if p.Essential {
			add(p)
		}
	}
	slices.SortFunc(open, byName)
	for len(open) > 0 {
		p := open[0]
		open = open[1:]
		for _, alternatives := range p.Depends {
			found := all.choose(alternatives, chosen)
			if found == nil {
				return nil, fmt.Errorf("%w: %s, which %s depends on", ErrNoPackage, strings.Join(alternatives, " or "), p.Name)
			}
			add(found)
		}
	}
	var out []*Package
	for _, p := range chosen {
		out = append(out, p)
	}
	slices.SortFunc(out, byName)
	return out, nil
}

// depends returns the names of what a package depends on, the first one where there
// are alternatives.
func (all *packages) depends(name string) ([]string, error) {
	p := all.byName[name]
	if p == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoPackage, name)
	}
	var out []string
	for _, alternatives := range p.Depends {
		out = append(out, alternatives[0])
	}
	return out, nil
}

func byName(a, b *Package) int { return strings.Compare(a.Name, b.Name) }

// choose returns what fulfils a dependency: a package that is chosen already,
// or the first alternative that there is. Of several packages that provide a
// name it takes the one that most systems have.
func (all *packages) choose(alternatives []string, chosen map[string]*Package) *Package {
	for _, name := range alternatives {
		if p := chosen[name]; p != nil {
			return p
		}
		for _, p := range all.provides[name] {
			if chosen[p.Name] != nil {
				return p
			}
		}
	}
	for _, name := range alternatives {
		if p := all.byName[name]; p != nil {
			return p
		}
		if of := all.provides[name]; len(of) > 0 {
			return slices.MinFunc(of, func(a, b *Package) int {
				return cmp.Or(cmp.Compare(priority(a), priority(b)), byName(a, b))
			})
		}
	}
	return nil
}

func priority(p *Package) int {
	order := []string{"required", "important", "standard"}
	if i := slices.Index(order, p.Priority); i >= 0 {
		return i
	}
	return len(order)
}
