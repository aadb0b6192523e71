package debian

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
)

// Package is what the index of a release says of one.
type Package struct {
	Name, Version, Filename, SHA256 string
	Priority                        string
	Essential                       bool
	Depends                         [][]string // each with its alternatives, Pre-Depends included
	Provides                        []string
	text                            string
}

// fresh is how long an index serves without a look whether there is a newer
// one.
const fresh = 24 * time.Hour

// refreshTimeout is how long a newer index may take where there is an older one.
const refreshTimeout = 30 * time.Second

// index is the list of a release's packages, in the cache.
type index struct{ id, path string }

// withIndex has something done with the current index. Archives remove packages that
// have a newer version, and another run removes an index that has: what fails with an
// index for that reason is done once more with the next one, if there is one.
func (a *archive) withIndex(ctx context.Context, base string, do func(index) error) error {
	ix, err := a.index(ctx, base, "")
	if err != nil {
		return err
	}
	err = do(ix)
	if !errors.Is(err, errMissing) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, asked := a.index(ctx, base, ix.id)
	if asked != nil || next.id == ix.id {
		return err
	}
	return do(next)
}

// index returns the current one, if the archive can be reached and the one in
// the cache is not fresh, or is the outdated one.
func (a *archive) index(ctx context.Context, base, outdated string) (index, error) {
	unlock, err := cache.Lock(ctx, filepath.Join(base, "index.lock"))
	if err != nil {
		return index{}, err
	}
	defer unlock()
	current := filepath.Join(base, "index")
	have := func() index {
		id, _ := os.ReadFile(current)
		return index{string(id), filepath.Join(base, "Packages-"+string(id)+".gz")}
	}
	old := have()
	kept := old.id != "" && exists(old.path)
	if st, err := os.Stat(current); kept && err == nil && time.Since(st.ModTime()) < fresh && old.id != outdated {
		return old, nil
	}
	ask := ctx
	if kept {
		// A network that swallows everything must not keep guests from starting.
		var cancel context.CancelFunc
		ask, cancel = context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
	}
	id, err := a.release256(ask)
	for try := 1; err == nil && (id != old.id || !kept); try++ {
		path := a.dists() + "/by-hash/SHA256/" + id
		err = a.download(ask, path, filepath.Join(base, "Packages-"+id+".gz"), id)
		if !errors.Is(err, errMissing) || try == tries {
			break
		}
		// Of the servers behind one name, one may have a newer release than another.
		a.wait(ask, try)
		id, err = a.release256(ask)
	}
	switch {
	case err == nil:
		if err := cache.WriteFile(current, []byte(id)); err != nil {
			return index{}, err
		}
		if kept && old.id != id {
			os.Remove(old.path)
		}
		return have(), nil
	case kept && !errors.Is(err, ErrUntrusted) && ctx.Err() == nil:
		return old, nil
	}
	return index{}, err
}

// read parses the index.
func (ix index) read() (*packages, error) {
	f, err := os.Open(ix.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ix.path, err)
	}
	all, err := parsePackages(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ix.path, err)
	}
	return all, nil
}

// parsePackages reads stanzas; of several versions of a package it keeps the
// newest.
func parsePackages(r io.Reader) (*packages, error) {
	all := &packages{byName: make(map[string]*Package), provides: make(map[string][]*Package)}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	lines.Split(splitStanzas)
	for lines.Scan() {
		p := parsePackage(lines.Text())
		if p.Name == "" {
			continue
		}
		if old := all.byName[p.Name]; old == nil || compareVersions(old.Version, p.Version) < 0 {
			all.byName[p.Name] = p
		}
	}
	for _, p := range all.byName {
		for _, name := range p.Provides {
			all.provides[name] = append(all.provides[name], p)
		}
	}
	return all, lines.Err()
}

// splitStanzas is a bufio.SplitFunc for paragraphs.
func splitStanzas(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.Index(data, []byte("\n\n")); i >= 0 {
		return i + 2, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func parsePackage(text string) *Package {
	p := &Package{text: text}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			continue
		}
		switch name {
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "Filename":
			p.Filename = value
		case "SHA256":
			p.SHA256 = value
		case "Priority":
			p.Priority = value
		case "Essential":
			p.Essential = value == "yes"
		case "Depends", "Pre-Depends":
			p.Depends = append(p.Depends, parseRelations(value)...)
		case "Provides":
			for _, alternatives := range parseRelations(value) {
				p.Provides = append(p.Provides, alternatives...)
			}
		}
	}
	return p
}

// parseRelations splits "a (>= 1), b:any | c" into [[a] [b c]].
func parseRelations(value string) [][]string {
	var out [][]string
	for group := range strings.SplitSeq(value, ",") {
		var alternatives []string
		for one := range strings.SplitSeq(group, "|") {
			one, _, _ = strings.Cut(one, "(")
			one, _, _ = strings.Cut(one, ":")
			if one = strings.TrimSpace(one); one != "" {
				alternatives = append(alternatives, one)
			}
		}
		if alternatives != nil {
			out = append(out, alternatives)
		}
	}
	return out
}
