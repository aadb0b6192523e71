package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// keyError is what is wrong with the value of a key, such as "gateway.idle".
type keyError struct {
	key string
	error
}

func (e keyError) Unwrap() error { return e.error }

// at returns an error of the value of a key; nil stays nil.
func at(key string, err error) error {
	if err == nil {
		return nil
	}
	return keyError{key, err}
}

// key is a key of the configuration file.
type key struct {
	path  []string
	line  int
	value json.RawMessage
}

func (k *key) String() string { return strings.Join(k.path, ".") }

// keys calls f for each key of the object with which the text from an offset on begins, the outer ones
// first, until f returns false. It reports whether f never did.
func keys(text []byte, from int, path []string, f func(*key) bool) bool {
	d := json.NewDecoder(bytes.NewReader(text[from:]))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return true
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return true
		}
		k := key{path: append(path[:len(path):len(path)], name), line: lineOf(text, from+int(d.InputOffset()))}
		if err := d.Decode(&k.value); err != nil {
			return true
		}
		if !f(&k) || !keys(text, from+int(d.InputOffset())-len(k.value), k.path, f) {
			return false
		}
	}
	return true
}

func lineOf(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

// locate adds to an error of the configuration which line and key it is of, as far as that is known.
func locate(text []byte, err error) error {
	var syntax *json.SyntaxError
	var of keyError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", lineOf(text, int(syntax.Offset)), err)
	case errors.Is(err, io.EOF):
		return errors.New("line 1: the file is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("line %d: the text ends before the configuration does", lineOf(text, len(text)))
	case errors.As(err, &of):
		return locateKey(text, of.key, err)
	}
	keys(text, 0, nil, func(k *key) bool {
		if alone := k.decode(); alone != nil {
			err = fmt.Errorf("line %d: %q: %w", k.line, k, alone)
			return false
		}
		return true
	})
	return err
}

// locateKey adds the line of a key to an error, or of the innermost key around it that the text has: a tenant has what
// is left out from those of all.
func locateKey(text []byte, name string, err error) error {
	line, deepest := 0, -1
	general := name[strings.LastIndex(name, ".")+1:]
	keys(text, 0, nil, func(k *key) bool {
		at := k.String()
		depth := len(at)
		switch {
		case at == name:
			depth++
		case at == general && strings.HasPrefix(name, "tenants."):
			depth = len(name)
		case !strings.HasPrefix(name, at+"."):
			return true
		}
		if depth > deepest {
			line, deepest = k.line, depth
		}
		return at != name
	})
	if line == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// repeated returns an error if an object of the text has a key twice: only the last one would count.
func repeated(text []byte) (err error) {
	seen := map[string]bool{}
	keys(text, 0, nil, func(k *key) bool {
		path := slices.Clone(k.path)
		for i := range path { // names of fields match in any case
			if i != 1 || path[0] != "tenants" {
				path[i] = strings.ToLower(path[i])
			}
		}
		name := strings.Join(path, "\x00")
		if seen[name] {
			err = fmt.Errorf("line %d: %q: the key is there twice", k.line, k)
		}
		seen[name] = true
		return err == nil
	})
	return err
}

// decode returns what is wrong with a key and its value; the keys of an object are left to themselves.
func (k *key) decode() error {
	value := k.value
	if value[0] == '{' {
		value = json.RawMessage("{}")
	}
	for i := len(k.path) - 1; i >= 0; i-- {
		b, err := json.Marshal(map[string]json.RawMessage{k.path[i]: value})
		if err != nil {
			return err
		}
		value = b
	}
	err := decode(value, new(config))
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		return fmt.Errorf("a value of type %s in the place of %s", kind.Value, typeName(kind.Type))
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return errors.New("there is no such key")
	}
	return err
}

func typeName(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	}
	return "a whole number"
}

// decode reads a configuration, in which nothing may be unknown, and nothing may follow.
func decode(text []byte, c *config) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return err
	}
	end := int(d.InputOffset())
	if rest := bytes.TrimSpace(text[end:]); len(rest) > 0 {
		return fmt.Errorf("line %d: something follows the end", lineOf(text, len(text)-len(bytes.TrimLeft(text[end:], " \t\r\n"))))
	}
	return nil
}
