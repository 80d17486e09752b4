// Package filter compiles the filters of a recording, and evaluates them on events.
//
// The language is that of crates/filter; docs/guide/filter.md describes it. An agent compiles a
// filter's text itself, for each event, and evaluates it before anything is written. It neither
// allocates nor blocks then.
package filter

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of filters, see crates/filter/src/lib.rs.
const (
	maxText     = 4096
	maxNesting  = 64
	maxStack    = 64
	maxOperands = 64
	maxSegments = 16
	maxName     = 255
	maxLiteral  = 255
)

var errFilter = errors.New("no filter that this agent understands")

// scope is where a name is looked up.
type scope uint8

const (
	ofField scope = iota
	ofContext
	ofApplication
)

// segment is a step of a path: a name, or the number of an element.
type segment struct {
	name    string
	index   uint32
	isIndex bool
}

// name is the name of a field or a context.
type name struct {
	scope scope
	path  []segment
}

func (n *name) is(other *name) bool {
	if n.scope != other.scope || len(n.path) != len(other.path) {
		return false
	}
	for i := range n.path {
		if n.path[i] != other.path[i] {
			return false
		}
	}
	return true
}

type nodeKind uint8

const (
	numberNode nodeKind = iota
	textNode
	nameNode
	unaryNode
	comparisonNode
	arithmeticNode
	logicNode
)

// node is a part of a filter, in postfix order.
type node struct {
	kind nodeKind
	// operator is that of the kind.
	operator uint8
	number   value
	text     pattern
	// name is the number of a name.
	name int
	// left is the number of the node with which the left side of `&&` and `||` ends.
	left int
}

// expression is a filter that was parsed.
type expression struct {
	names []name
	nodes []node
}

type tokenKind uint8

const (
	endToken tokenKind = iota
	numberToken
	textToken
	wordToken
	signToken
)

type token struct {
	kind   tokenKind
	number value
	text   pattern
	// word is a word, or a sign.
	word string
}

type parser struct {
	rest    string
	token   token
	parsed  expression
	nesting int
	height  int
}

// operator is a binary operator with its precedence.
type operator struct {
	kind     nodeKind
	operator uint8
	power    int
}

var operators = map[string]operator{
	"||": {logicNode, uint8(or), 1}, "&&": {logicNode, uint8(and), 2},
	"|": {arithmeticNode, uint8(bitOr), 3}, "^": {arithmeticNode, uint8(bitXor), 4},
	"&": {arithmeticNode, uint8(bitAnd), 5}, "==": {comparisonNode, uint8(equal), 6},
	"!=": {comparisonNode, uint8(notEqual), 6}, "<": {comparisonNode, uint8(less), 7},
	"<=": {comparisonNode, uint8(lessEqual), 7}, ">": {comparisonNode, uint8(greater), 7},
	">=": {comparisonNode, uint8(greaterEqual), 7}, "<<": {arithmeticNode, uint8(shiftLeft), 8},
	">>": {arithmeticNode, uint8(shiftRight), 8}, "+": {arithmeticNode, uint8(add), 9},
	"-": {arithmeticNode, uint8(subtract), 9}, "*": {arithmeticNode, uint8(multiply), 10},
	"/": {arithmeticNode, uint8(divide), 10}, "%": {arithmeticNode, uint8(remainder), 10},
}

// signs are all signs; a longer one stands before its own prefix.
var signs = []string{
	"||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "|", "^", "&", "<", ">", "+", "-", "*", "/", "%", "!",
	"~", "(", ")", "[", "]", ".", ":", "$",
}

// failure carries an error out of the parser.
type failure struct{}

func fail() { panic(failure{}) }

// parse parses a filter.
func parse(text string) (parsed *expression, err error) {
	if len(text) > maxText {
		return nil, errFilter
	}
	defer func() {
		if problem := recover(); problem != nil {
			if _, ok := problem.(failure); !ok {
				panic(problem)
			}
			parsed, err = nil, errFilter
		}
	}()
	p := parser{rest: text}
	p.advance()
	p.binary(0)
	if p.token.kind != endToken {
		fail()
	}
	return &p.parsed, nil
}

func (p *parser) is(sign string) bool { return p.token.kind == signToken && p.token.word == sign }

func (p *parser) expect(sign string) {
	if !p.is(sign) {
		fail()
	}
	p.advance()
}

// advance reads the next token.
func (p *parser) advance() {
	p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace)
	if p.rest == "" {
		p.token = token{}
		return
	}
	switch first := p.rest[0]; {
	case isDigit(first):
		p.token = token{kind: numberToken, number: p.number()}
	case isLetter(first):
		p.token = token{kind: wordToken, word: p.take(func(c byte) bool { return isLetter(c) || isDigit(c) })}
	case first == '"':
		p.token = token{kind: textToken, text: p.textLiteral()}
	case first == '\'':
		p.token = token{kind: numberToken, number: p.characterLiteral()}
	default:
		for _, sign := range signs {
			if strings.HasPrefix(p.rest, sign) {
				p.rest = p.rest[len(sign):]
				p.token = token{kind: signToken, word: sign}
				return
			}
		}
		fail()
	}
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// take takes the longest prefix of bytes that are wanted.
func (p *parser) take(isWanted func(byte) bool) string {
	end := 0
	for end < len(p.rest) && isWanted(p.rest[end]) {
		end++
	}
	taken := p.rest[:end]
	p.rest = p.rest[end:]
	return taken
}

var units = map[string]uint64{
	"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9, "h": 3600e9,
	"B": 1, "K": 1 << 10, "KB": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "MiB": 1 << 20,
	"G": 1 << 30, "GB": 1 << 30, "GiB": 1 << 30, "T": 1 << 40, "TB": 1 << 40, "TiB": 1 << 40,
}

var radixes = map[string]int{"0x": 16, "0X": 16, "0b": 2, "0B": 2, "0o": 8, "0O": 8}

// number takes a number with its unit.
func (p *parser) number() value {
	if len(p.rest) >= 2 {
		if radix, ok := radixes[p.rest[:2]]; ok {
			p.rest = p.rest[2:]
			return digits(p.take(func(c byte) bool { return isDigit(c) || isLetter(c) }), radix)
		}
	}
	isOfNumber := func(c byte) bool { return isDigit(c) || c == '_' }
	whole := p.take(isOfNumber)
	fraction, exponent := "", ""
	if len(p.rest) >= 2 && p.rest[0] == '.' && isDigit(p.rest[1]) {
		p.rest = p.rest[1:]
		fraction = p.take(isOfNumber)
	}
	if len(p.rest) >= 2 && p.rest[0]|0x20 == 'e' {
		sign := 1
		if p.rest[1] == '+' || p.rest[1] == '-' {
			sign = 2
		}
		if len(p.rest) > sign && isDigit(p.rest[sign]) {
			exponent = p.rest[:sign]
			p.rest = p.rest[sign:]
			exponent += p.take(isDigit)
		}
	}
	unit := p.unit()
	switch {
	case unit != "":
		factor, ok := units[unit]
		if !ok || exponent != "" {
			fail()
		}
		return withUnit(whole, fraction, factor)
	case fraction != "" || exponent != "":
		text := strings.ReplaceAll(whole+"."+fraction+exponent, "_", "")
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) {
			fail()
		}
		return ofFloat(f)
	case len(whole) > 1 && whole[0] == '0':
		return digits(whole, 8)
	}
	return digits(whole, 10)
}

// unit takes the word behind a number.
func (p *parser) unit() string {
	end := strings.IndexFunc(p.rest, func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsNumber(c) })
	if end < 0 {
		end = len(p.rest)
	}
	unit := p.rest[:end]
	p.rest = p.rest[end:]
	return unit
}

func digits(text string, radix int) value {
	n, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), radix, 64)
	if err != nil {
		fail()
	}
	return ofNatural(n)
}

// withUnit returns a number such as `1.5ms`: a whole number of bytes or nanoseconds.
func withUnit(whole, fraction string, factor uint64) value {
	if len(whole) > 1 && whole[0] == '0' {
		fail()
	}
	high, low := bits.Mul64(digits(whole, 10).bits, factor)
	fraction = strings.TrimRight(strings.ReplaceAll(fraction, "_", ""), "0")
	if high != 0 || len(fraction) > 18 {
		fail()
	}
	if fraction != "" {
		divisor := uint64(1)
		for range fraction {
			divisor *= 10
		}
		// The fraction is smaller than the divisor, so the quotient is smaller than the factor.
		high, part := bits.Mul64(digits(fraction, 10).bits, factor)
		quotient, rest := bits.Div64(high, part, divisor)
		sum, carry := bits.Add64(low, quotient, 0)
		if rest != 0 || carry != 0 {
			fail()
		}
		low = sum
	}
	return ofNatural(low)
}

// escape takes an escape behind its `\`.
func (p *parser) escape(own string) byte {
	if p.rest == "" {
		fail()
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	switch {
	case c == 'n':
		return '\n'
	case c == 't':
		return '\t'
	case c == 'r':
		return '\r'
	case c == '0':
		return 0
	case strings.IndexByte(`\"'`+own, c) >= 0:
		return c
	case c == 'x' && len(p.rest) >= 2:
		n, err := strconv.ParseUint(p.rest[:2], 16, 8)
		if err == nil {
			p.rest = p.rest[2:]
			return byte(n)
		}
	}
	fail()
	return 0
}

// characterLiteral takes a character between single quotes.
func (p *parser) characterLiteral() value {
	p.rest = p.rest[1:]
	if p.rest == "" {
		fail()
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	switch {
	case c == '\\':
		c = p.escape("")
	case c >= utf8.RuneSelf || c == '\'' || c < ' ' || c == 0x7f:
		fail()
	}
	if !strings.HasPrefix(p.rest, "'") {
		fail()
	}
	p.rest = p.rest[1:]
	return ofNatural(uint64(c))
}

// textLiteral takes a text between double quotes.
func (p *parser) textLiteral() pattern {
	p.rest = p.rest[1:]
	text := pattern{}
	for {
		if p.rest == "" {
			fail()
		}
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch c {
		case '"':
			if len(text) > maxLiteral {
				fail()
			}
			return text
		case '*', '?':
			text = append(text, c)
		case '\\':
			if c = p.escape("*?"); c == 0 {
				fail()
			}
			text = text.push(c)
		case 0:
			fail()
		default:
			text = text.push(c)
		}
	}
}

// push adds a node, and counts the values that a stack would have.
func (p *parser) push(n node) int {
	switch n.kind {
	case numberNode, textNode, nameNode:
		p.height++
	case comparisonNode, arithmeticNode, logicNode:
		p.height--
	}
	if p.height > maxStack {
		fail()
	}
	p.parsed.nodes = append(p.parsed.nodes, n)
	return len(p.parsed.nodes) - 1
}

// binary parses operands and operators of at least a precedence.
func (p *parser) binary(least int) {
	p.operand()
	for p.token.kind == signToken {
		op, ok := operators[p.token.word]
		if !ok || op.power < least {
			return
		}
		left := len(p.parsed.nodes) - 1
		p.advance()
		p.binary(op.power + 1)
		p.push(node{kind: op.kind, operator: op.operator, left: left})
	}
}

var unaries = map[string]unary{"!": not, "~": complement, "-": negate}

func (p *parser) operand() {
	if p.nesting > maxNesting {
		fail()
	}
	if p.token.kind == signToken {
		if op, ok := unaries[p.token.word]; ok {
			p.advance()
			p.nesting++
			p.operand()
			p.nesting--
			p.push(node{kind: unaryNode, operator: uint8(op)})
			return
		}
		if p.token.word == "(" {
			p.advance()
			p.nesting++
			p.binary(0)
			p.nesting--
			p.expect(")")
			return
		}
	}
	p.leaf()
}

func (p *parser) leaf() {
	found := p.token
	switch {
	case found.kind == numberToken:
		p.push(node{kind: numberNode, number: found.number})
	case found.kind == textToken:
		p.push(node{kind: textNode, text: found.text})
	case found.kind == wordToken && (found.word == "true" || found.word == "false"):
		p.push(node{kind: numberNode, number: ofBool(found.word == "true")})
	case found.kind == wordToken || p.is("$"):
		p.name()
		return
	default:
		fail()
	}
	p.advance()
}

func (p *parser) name() {
	found := name{scope: ofField}
	if p.is("$") {
		found.scope = ofContext
		p.advance()
	}
	first := p.word()
	if found.scope == ofContext && first == "app" && p.is(".") {
		found = name{ofApplication, []segment{{name: p.application()}}}
	} else {
		found.path = p.path(first)
	}
	for index := range p.parsed.names {
		if p.parsed.names[index].is(&found) {
			p.push(node{kind: nameNode, name: index})
			return
		}
	}
	if len(p.parsed.names) == maxOperands {
		fail()
	}
	p.parsed.names = append(p.parsed.names, found)
	p.push(node{kind: nameNode, name: len(p.parsed.names) - 1})
}

func (p *parser) word() string {
	if p.token.kind != wordToken || len(p.token.word) > maxName {
		fail()
	}
	word := p.token.word
	p.advance()
	return word
}

// path parses the rest of a path behind its first word.
func (p *parser) path(first string) []segment {
	path := []segment{{name: first}}
	for {
		var next segment
		switch {
		case p.is("."):
			p.advance()
			next.name = p.word()
		case p.is("["):
			p.advance()
			if p.token.kind != numberToken || p.token.number.repr != natural || p.token.number.bits > math.MaxUint32 {
				fail()
			}
			next = segment{index: uint32(p.token.number.bits), isIndex: true}
			p.advance()
			p.expect("]")
		default:
			return path
		}
		if len(path) == maxSegments {
			fail()
		}
		path = append(path, next)
	}
}

// application parses the name behind `$app`.
func (p *parser) application() string {
	p.advance()
	found := ""
	if p.token.kind == textToken {
		found = string(p.token.text)
		provider, rest, ok := strings.Cut(found, ":")
		if !ok || provider == "" || rest == "" || !isText(p.token.text) ||
			strings.ContainsFunc(found, func(c rune) bool { return unicode.IsControl(c) || strings.ContainsRune(`*?\"`, c) }) {
			fail()
		}
		p.advance()
	} else {
		found = p.word()
		p.expect(":")
		found += ":" + p.word()
	}
	if len(found) > maxName {
		fail()
	}
	return found
}
