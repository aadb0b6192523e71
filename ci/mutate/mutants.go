package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// A mutant is one change of a package. Its number selects it in the test program.
type mutant struct {
	id   int
	name string // package, file, function, and what changes
}

// An edit inserts text before the byte at an offset of a file. Of those at one offset, closing
// ones come first, the last made before the others, then opening ones in their order, so that
// edits of nested nodes nest.
type edit struct {
	at      int
	closing bool
	text    string
}

// walker makes the changes of a function.
type walker struct {
	fset *token.FileSet
	src  []byte
	add  func(what string) int // returns the number of a new mutant
	out  []edit
}

// mutants makes the changes of a function's body:
//
//   - the condition of an if or a case is always true, or always false; that of a for is false;
//   - an operand of && is true, or of || is false;
//   - < becomes <=, > becomes >=, and the reverse; == and != outside of conditions are negated;
//   - a call, an assignment, a step, a break, a continue or an empty return is left out;
//   - two neighbouring statements of these kinds change places if one assigns what the other has,
//     or both call functions, unless both only write numbers into bytes, or read them from there.
func (w *walker) mutants(body *ast.BlockStmt) {
	conditions := make(map[ast.Expr]bool)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.CallExpr:
			return w.source(n.Fun) != "panic"
		case *ast.IfStmt:
			conditions[ast.Unparen(n.Cond)] = true
			w.fix(n.Cond, true)
			w.fix(n.Cond, false)
		case *ast.ForStmt:
			if n.Cond != nil {
				conditions[n.Cond] = true
				w.fix(n.Cond, false)
			}
		case *ast.SwitchStmt:
			for _, clause := range n.Body.List {
				for _, c := range clause.(*ast.CaseClause).List {
					if n.Tag == nil {
						conditions[c] = true
						w.fix(c, true)
						w.fix(c, false)
					}
				}
			}
		case *ast.BinaryExpr:
			w.binary(n, conditions)
		case *ast.BlockStmt:
			w.statements(n.List)
		case *ast.CaseClause:
			w.statements(n.Body)
		case *ast.CommClause:
			w.statements(n.Body)
		}
		return true
	})
}

// fix makes a change in which a condition has one value.
func (w *walker) fix(e ast.Expr, value bool) {
	id := w.add(fmt.Sprintf("%v instead of %s", value, w.brief(e)))
	if value {
		w.wrap(e, "((", fmt.Sprintf(") || mutantOn(%d))", id))
	} else {
		w.wrap(e, "((", fmt.Sprintf(") && !mutantOn(%d))", id))
	}
}

func (w *walker) binary(n *ast.BinaryExpr, conditions map[ast.Expr]bool) {
	switch n.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{n.X, n.Y} {
			inner, ok := ast.Unparen(operand).(*ast.BinaryExpr)
			if !ok || inner.Op != n.Op {
				w.fix(operand, n.Op == token.LAND)
			}
			conditions[ast.Unparen(operand)] = true
		}
	case token.LSS, token.GTR:
		id := w.add("with equality: " + w.brief(n))
		w.wrap(n, "(", fmt.Sprintf(" || mutantOn(%d) && (%s) == (%s))", id, w.source(n.X), w.source(n.Y)))
	case token.LEQ, token.GEQ:
		id := w.add("without equality: " + w.brief(n))
		w.wrap(n, "(", fmt.Sprintf(" && !(mutantOn(%d) && (%s) == (%s)))", id, w.source(n.X), w.source(n.Y)))
	case token.EQL, token.NEQ:
		if !conditions[n] {
			id := w.add("negate " + w.brief(n))
			w.wrap(n, "((", fmt.Sprintf(") != mutantOn(%d))", id))
		}
	}
}

// statements makes the changes that remove and swap the statements of a list.
func (w *walker) statements(list []ast.Stmt) {
	for i, s := range list {
		if !removable(s) {
			continue
		}
		id := w.add("without " + w.brief(s))
		w.wrap(s, fmt.Sprintf("if !mutantOn(%d) { ", id), " }")
		if i+1 < len(list) && swappable(s) && swappable(list[i+1]) && w.related(s, list[i+1]) {
			next := list[i+1]
			id := w.add(fmt.Sprintf("%s after %s", w.brief(s), w.brief(next)))
			w.out = append(w.out, edit{w.offset(s.Pos()), false, fmt.Sprintf("if mutantOn(%d) { %s\n}; ", id, w.source(next))})
			w.wrap(next, fmt.Sprintf("if !mutantOn(%d) { ", id), " }")
		}
	}
}

func removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return len(s.Results) == 0
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	}
	return swappable(s)
}

func swappable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		name, ok := call.Fun.(*ast.Ident)
		return !ok || name.Name != "panic"
	case *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return false
		}
		for _, left := range s.Lhs {
			if name, ok := left.(*ast.Ident); !ok || name.Name != "_" {
				return true
			}
		}
	}
	return false
}

// related reports whether the order of two statements may matter.
func (w *walker) related(a, b ast.Stmt) bool {
	assignedA, usedA, callsA := w.uses(a)
	assignedB, usedB, callsB := w.uses(b)
	if callsA != callsNone && callsB != callsNone && (callsA != callsB || callsA == callsOther) {
		return true
	}
	for name := range assignedA {
		if usedB[name] || assignedB[name] {
			return true
		}
	}
	for name := range assignedB {
		if usedA[name] {
			return true
		}
	}
	return false
}

// What a statement calls, builtins and conversions of basic types left out.
const (
	callsNone  = iota
	callsPut   // only PutUint16, PutUint32 and PutUint64 of a byte order: encoders write each place once
	callsRead  // only Uint16, Uint32 and Uint64
	callsOther // anything else, or both
)

func callee(c *ast.CallExpr) int {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		if predeclared[f.Name] {
			return callsNone
		}
	case *ast.SelectorExpr:
		switch f.Sel.Name {
		case "PutUint16", "PutUint32", "PutUint64":
			return callsPut
		case "Uint16", "Uint32", "Uint64":
			if len(c.Args) == 1 { // those of a random source have none
				return callsRead
			}
		}
	}
	return callsOther
}

// uses returns the variables and fields that a statement assigns and uses, and what it calls.
func (w *walker) uses(s ast.Stmt) (assigned, used map[string]bool, calls int) {
	assigned, used = make(map[string]bool), make(map[string]bool)
	assign := func(e ast.Expr) {
		for {
			index, ok := e.(*ast.IndexExpr)
			if !ok {
				break
			}
			e = index.X
		}
		assigned[w.source(e)] = true
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		for _, left := range s.Lhs {
			assign(left)
		}
	case *ast.IncDecStmt:
		assign(s.X)
	}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			used[w.source(n)] = true
		case *ast.Ident:
			used[n.Name] = true
		case *ast.CallExpr:
			switch c := callee(n); {
			case calls == callsNone:
				calls = c
			case c != callsNone && c != calls:
				calls = callsOther
			}
		}
		return true
	})
	return assigned, used, calls
}

var predeclared = map[string]bool{
	"append": true, "cap": true, "clear": true, "copy": true, "delete": true, "len": true, "max": true, "min": true,
	"int": true, "int32": true, "int64": true, "uint": true, "uint8": true, "uint16": true, "uint32": true, "uint64": true,
	"byte": true, "float64": true, "string": true,
}

func (w *walker) wrap(n ast.Node, before, after string) {
	w.out = append(w.out, edit{w.offset(n.Pos()), false, before}, edit{w.offset(n.End()), true, after})
}

func (w *walker) offset(p token.Pos) int   { return w.fset.Position(p).Offset }
func (w *walker) source(n ast.Node) string { return string(w.src[w.offset(n.Pos()):w.offset(n.End())]) }
func (w *walker) brief(n ast.Node) string {
	text := strings.Join(strings.Fields(w.source(n)), " ")
	if len(text) > 80 {
		text = text[:80] + "..."
	}
	return "`" + text + "`"
}
