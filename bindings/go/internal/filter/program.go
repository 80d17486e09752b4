package filter

import (
	"encoding/binary"
	"math"
	"os"
	"strings"

	"github.com/tompion/tompion/bindings/go/internal/record"
)

// Kind is what kind of values a field has.
type Kind uint8

// Kinds of types.
const (
	Integer Kind = iota
	Float
	Enumeration
	Text
	List
	Structure
)

// Type is a field's type, as far as filters are concerned.
type Type struct {
	Kind Kind
	// Size is that of a number, or of an element, in bytes.
	Size            uint8
	Signed, Network bool
	// Count is the number of elements of an array, negative for a slice or a string.
	Count   int
	Labels  []Label
	Members []Field
}

// Field is a field of an event.
type Field struct {
	Name    string
	Context bool
	Type    Type
}

// Label is a name for values of an enumeration.
type Label struct {
	low, high value
	name      string
}

// NewLabel returns the name for a range of values. Of an unsigned type of 64 bits they are its
// bits.
func NewLabel(low, high int64, isUnsigned bool, name string) Label {
	if isUnsigned {
		return Label{ofNatural(uint64(low)), ofNatural(uint64(high)), name}
	}
	return Label{ofInteger(low), ofInteger(high), name}
}

// Verdict is what a filter says about an event.
type Verdict uint8

// Verdicts. An unknown one may be decided by the session.
const (
	False Verdict = iota
	True
	Unknown
)

// Values are those of an event that is being recorded.
type Values struct {
	// Image is its fixed part.
	Image []byte
	Tails []record.Tail
	// Thread is the calling thread's id.
	Thread uint32
}

// place is where a value of an operand is.
type place struct {
	kind   placeKind
	offset int
	tail   int
	ty     Type
}

type placeKind uint8

const (
	isAbsent placeKind = iota
	isElsewhere
	isFixed
	isElement
	isOfTail
	isThread
	isProcess
)

// valueType is the type of a part of a filter.
type valueType uint8

const (
	anyType valueType = iota
	integerType
	floatType
	numberType
	literalType
	textType
	labelsType
	unusableType
)

// found is a name that was looked up.
type found struct {
	place  place
	ty     valueType
	labels []Label
}

type opKind uint8

const (
	opPush opKind = iota
	opLoad
	opUnary
	opCompare
	opArithmetic
	opCombine
	opShortcut
	opText
	opSame
	opWithin
)

// op is an operation for a stack machine. Jumps only go forwards.
type op struct {
	kind           opKind
	operator       uint8
	operand, other int
	to             int
	number         value
	text           pattern
	plain          []byte
	isPlain        bool
	labels         []Label
}

// Program is a filter for the events of one description.
type Program struct {
	places  []place
	ops     []op
	defers  bool
	process uint64
}

// Compile compiles a filter for events with these fields. It returns nil if the filter can't be
// true for them, or is not understood.
func Compile(text string, fields []Field) *Program {
	parsed, err := parse(text)
	if err != nil {
		return nil
	}
	program := &Program{process: uint64(os.Getpid())}
	all := make([]found, len(parsed.names))
	hasPlaces := false
	for i := range parsed.names {
		all[i] = find(fields, &parsed.names[i])
		program.places = append(program.places, all[i].place)
		program.defers = program.defers || all[i].place.kind == isElsewhere
		hasPlaces = hasPlaces || all[i].place.kind != isAbsent
	}
	if !check(parsed, all) {
		return nil
	}
	program.generate(parsed, all)
	if !hasPlaces && program.Evaluate(&Values{}) != True {
		return nil
	}
	return program
}

// Defers says whether the filter asks for something that only the session knows.
func (p *Program) Defers() bool { return p.defers }

// find looks a name up.
func find(fields []Field, n *name) found {
	head := n.path[0].name
	isWanted := func(*Field) bool { return true }
	if n.scope != ofField {
		isWanted = func(field *Field) bool { return field.Context }
	}
	field := head
	if n.scope == ofApplication {
		field = "app_" + strings.Map(func(c rune) rune {
			if c < 0x80 && (isLetter(byte(c)) || isDigit(byte(c))) {
				return c
			}
			return '_'
		}, head)
	}
	at := place{}
	if found, ok := findField(fields, field, n.path[1:], &at, isWanted); ok {
		return found
	}
	switch {
	case n.scope == ofField || n.scope == ofApplication || len(n.path) > 1:
		return found{}
	case head == "tid":
		return found{place: place{kind: isThread}, ty: integerType}
	case head == "pid":
		return found{place: place{kind: isProcess}, ty: integerType}
	}
	return found{place: place{kind: isElsewhere}}
}

// findField finds the first field with a name. The place moves over the fields before it.
func findField(fields []Field, name string, rest []segment, at *place, isWanted func(*Field) bool) (found, bool) {
	for i := range fields {
		if fields[i].Name == name && isWanted(&fields[i]) {
			return placeOf(&fields[i].Type, rest, *at), true
		}
		pass(&fields[i].Type, at)
	}
	return found{}, false
}

// pass moves a place over a field.
func pass(ty *Type, at *place) {
	switch {
	case ty.Kind == Structure:
		for i := range ty.Members {
			pass(&ty.Members[i].Type, at)
		}
	case ty.Kind != Text && ty.Kind != List:
		at.offset += int(ty.Size)
	default:
		at.tail++
		// An array has nothing in the fixed part; all others their number of elements.
		if !ty.isArray() {
			at.offset += 4
		}
	}
}

func (ty *Type) isArray() bool { return (ty.Kind == Text || ty.Kind == List) && ty.Count >= 0 }

// placeOf returns the place of a field, or of the part of it that the rest of a path leads to.
func placeOf(ty *Type, rest []segment, at place) found {
	at.ty = *ty
	unusable := found{ty: unusableType}
	switch {
	case ty.Kind == Structure && len(rest) > 0 && !rest[0].isIndex:
		inner, ok := findField(ty.Members, rest[0].name, rest[1:], &at, func(*Field) bool { return true })
		if !ok {
			return found{}
		}
		return inner
	case ty.Kind == List && len(rest) == 1 && rest[0].isIndex:
		if ty.Count >= 0 && uint64(rest[0].index) >= uint64(ty.Count) {
			return unusable
		}
		at.kind, at.offset = isElement, int(rest[0].index)*int(ty.Size)
		return found{place: at, ty: integerType}
	case len(rest) > 0:
		return unusable
	}
	at.kind = isFixed
	switch ty.Kind {
	case Integer:
		return found{place: at, ty: integerType}
	case Float:
		return found{place: at, ty: floatType}
	case Enumeration:
		return found{place: at, ty: labelsType, labels: ty.Labels}
	case Text:
		at.kind = isOfTail
		return found{place: at, ty: textType}
	}
	return unusable
}

// typed is a part of a filter with its type.
type typed struct {
	ty     valueType
	text   pattern
	labels []Label
}

func (t *typed) isNumber() bool { return t.ty != textType && t.ty != literalType }

// check says whether all operators fit their operands, as crates/filter/src/types.rs.
func check(parsed *expression, all []found) bool {
	var stack []typed
	for i := range parsed.nodes {
		n := &parsed.nodes[i]
		switch n.kind {
		case numberNode:
			ty := integerType
			if n.number.repr == float {
				ty = floatType
			}
			stack = append(stack, typed{ty: ty})
		case textNode:
			stack = append(stack, typed{ty: literalType, text: n.text})
		case nameNode:
			if all[n.name].ty == unusableType {
				return false
			}
			stack = append(stack, typed{ty: all[n.name].ty, labels: all[n.name].labels})
		case unaryNode:
			top := &stack[len(stack)-1]
			if !checkUnary(unary(n.operator), top) {
				return false
			}
		default:
			left, right := &stack[len(stack)-2], &stack[len(stack)-1]
			ty, ok := checkBinary(n, left, right)
			if !ok {
				return false
			}
			stack = append(stack[:len(stack)-2], typed{ty: ty})
		}
	}
	return stack[0].isNumber()
}

func checkUnary(operator unary, top *typed) bool {
	if !top.isNumber() || operator == complement && top.ty == floatType {
		return false
	}
	ty := integerType
	if operator == negate {
		ty = arithmeticTypeOf(top.ty, integerType)
	}
	*top = typed{ty: ty}
	return true
}

func checkBinary(n *node, left, right *typed) (valueType, bool) {
	areNumbers := left.isNumber() && right.isNumber()
	switch n.kind {
	case comparisonNode:
		operator := comparison(n.operator)
		if operator != equal && operator != notEqual {
			return integerType, areNumbers
		}
		return integerType, checkEquality(left, right)
	case arithmeticNode:
		if arithmetic(n.operator).isIntegral() {
			return integerType, areNumbers && left.ty != floatType && right.ty != floatType
		}
		return arithmeticTypeOf(left.ty, right.ty), areNumbers
	}
	return integerType, areNumbers
}

func checkEquality(left, right *typed) bool {
	if left.ty == literalType {
		left, right = right, left
	}
	switch {
	case right.ty == literalType && left.ty == labelsType:
		for i := range left.labels {
			if right.text.matches([]byte(left.labels[i].name)) {
				return true
			}
		}
		return false
	case right.ty == literalType:
		return left.ty == textType || left.ty == anyType
	case left.ty == textType:
		return right.ty == textType || right.ty == anyType
	case right.ty == textType:
		return left.ty == anyType
	}
	return true
}

// arithmeticTypeOf returns the type of `+ - * /` applied to two numbers.
func arithmeticTypeOf(left, right valueType) valueType {
	isWhole := func(ty valueType) bool { return ty == integerType || ty == labelsType }
	switch {
	case left == floatType || right == floatType:
		return floatType
	case isWhole(left) && isWhole(right):
		return integerType
	}
	return numberType
}

// generate makes the operations of an expression.
func (p *Program) generate(parsed *expression, all []found) {
	// shortcuts are where the left sides of `&&` and `||` end, by the number of their last node.
	shortcuts := map[int][]int{}
	for i := range parsed.nodes {
		if n := &parsed.nodes[i]; n.kind == logicNode {
			shortcuts[n.left] = append(shortcuts[n.left], i)
		}
	}
	pending := map[int]int{}
	// items are the nodes whose values are on the stack: a comparison looks back at its sides.
	var items []*node
	for i := range parsed.nodes {
		n := &parsed.nodes[i]
		switch n.kind {
		case numberNode:
			p.ops = append(p.ops, op{kind: opPush, number: n.number})
		case textNode:
			// Its value is never used; it holds the place of one.
			p.ops = append(p.ops, op{kind: opPush})
		case nameNode:
			p.ops = append(p.ops, op{kind: opLoad, operand: n.name})
		case unaryNode:
			items = items[:len(items)-1]
			p.ops = append(p.ops, op{kind: opUnary, operator: n.operator})
		case logicNode:
			items = items[:len(items)-2]
			p.ops = append(p.ops, op{kind: opCombine, operator: n.operator})
			p.ops[pending[i]].to = len(p.ops)
		case arithmeticNode:
			items = items[:len(items)-2]
			p.ops = append(p.ops, op{kind: opArithmetic, operator: n.operator})
		case comparisonNode:
			p.comparison(comparison(n.operator), items[len(items)-2], items[len(items)-1], all)
			items = items[:len(items)-2]
		}
		items = append(items, n)
		for _, end := range shortcuts[i] {
			pending[end] = len(p.ops)
			p.ops = append(p.ops, op{kind: opShortcut, operator: parsed.nodes[end].operator})
		}
	}
}

// comparison makes the operations of a comparison. Its sides are the last two operations where
// they are names or literals.
func (p *Program) comparison(operator comparison, left, right *node, all []found) {
	if left.kind == textNode {
		left, right = right, left
	}
	isEquality := operator == equal || operator == notEqual
	switch {
	case isEquality && left.kind == nameNode && right.kind == textNode:
		p.ops = append(p.ops[:len(p.ops)-2], textOp(left.name, right.text, &all[left.name]))
	case isEquality && left.kind == nameNode && right.kind == nameNode:
		p.ops = append(p.ops[:len(p.ops)-2], op{kind: opSame, operand: left.name, other: right.name})
	default:
		p.ops = append(p.ops, op{kind: opCompare, operator: uint8(operator)})
		return
	}
	if operator == notEqual {
		p.ops = append(p.ops, op{kind: opUnary, operator: uint8(not)})
	}
}

func textOp(operand int, text pattern, found *found) op {
	if found.ty == labelsType {
		made := op{kind: opWithin, operand: operand}
		for _, label := range found.labels {
			if text.matches([]byte(label.name)) {
				made.labels = append(made.labels, label)
			}
		}
		return made
	}
	made := op{kind: opText, operand: operand, text: text}
	made.plain, made.isPlain = text.plain()
	return made
}

// Evaluate evaluates the filter. It does not allocate.
func (p *Program) Evaluate(values *Values) Verdict {
	var stack [maxStack]value
	height := 0
	for at := 0; at < len(p.ops); {
		o := &p.ops[at]
		at++
		switch o.kind {
		case opUnary:
			stack[height-1] = unary(o.operator).apply(stack[height-1])
		case opCompare:
			height--
			stack[height-1] = comparison(o.operator).apply(stack[height-1], stack[height])
		case opArithmetic:
			height--
			stack[height-1] = arithmetic(o.operator).apply(stack[height-1], stack[height])
		case opCombine:
			height--
			stack[height-1] = logic(o.operator).apply(stack[height-1], stack[height])
		case opShortcut:
			decisive := logic(o.operator) == or
			if isTrue, isKnown := stack[height-1].truth(); isKnown && isTrue == decisive {
				stack[height-1] = ofBool(decisive)
				at = o.to
			}
		default:
			stack[height] = p.load(o, values)
			height++
		}
	}
	switch isTrue, isKnown := stack[0].truth(); {
	case !isKnown:
		return Unknown
	case isTrue:
		return True
	}
	return False
}

// load returns the value of an operation that takes nothing from the stack.
func (p *Program) load(o *op, values *Values) value {
	switch o.kind {
	case opPush:
		return o.number
	case opLoad:
		return p.number(o.operand, values)
	case opText:
		text, ok := p.text(o.operand, values)
		if !ok {
			return value{}
		}
		if o.isPlain {
			return ofBool(string(untilNUL(text)) == string(o.plain))
		}
		return ofBool(o.text.matches(untilNUL(text)))
	case opSame:
		left, ok := p.text(o.operand, values)
		right, okToo := p.text(o.other, values)
		if ok && okToo {
			return ofBool(string(untilNUL(left)) == string(untilNUL(right)))
		}
		return equal.apply(p.number(o.operand, values), p.number(o.other, values))
	case opWithin:
		number := p.number(o.operand, values)
		if !number.isInteger() {
			return value{}
		}
		for i := range o.labels {
			if compare(number, o.labels[i].low) != less && compare(number, o.labels[i].high) != greater {
				return ofBool(true)
			}
		}
		return ofBool(false)
	}
	return value{}
}

func (p *Program) text(operand int, values *Values) ([]byte, bool) {
	at := &p.places[operand]
	if at.kind != isOfTail || at.tail >= len(values.Tails) || values.Tails[at.tail].Size > record.MaxSize {
		return nil, false
	}
	return values.Tails[at.tail].Bytes(), true
}

func (p *Program) number(operand int, values *Values) value {
	at := &p.places[operand]
	switch at.kind {
	case isThread:
		return ofNatural(uint64(values.Thread))
	case isProcess:
		return ofNatural(p.process)
	case isFixed:
		return loadNumber(values.Image, at.offset, &at.ty)
	case isElement:
		if at.tail < len(values.Tails) && values.Tails[at.tail].Size <= record.MaxSize {
			return loadNumber(values.Tails[at.tail].Bytes(), at.offset, &at.ty)
		}
	}
	return value{}
}

// loadNumber loads a number from bytes; unknown if they end before.
func loadNumber(bytes []byte, offset int, ty *Type) value {
	size := int(ty.Size)
	if offset < 0 || offset+size > len(bytes) || size > 8 {
		return value{}
	}
	var raw [8]byte
	if ty.Network {
		for i := range size {
			raw[i] = bytes[offset+size-1-i]
		}
	} else {
		copy(raw[:size], bytes[offset:])
	}
	bits := binary.LittleEndian.Uint64(raw[:])
	switch {
	case ty.Kind == Float && size == 4:
		return ofFloat(float64(math.Float32frombits(uint32(bits))))
	case ty.Kind == Float:
		return ofFloat(math.Float64frombits(bits))
	case ty.Signed:
		shift := 64 - 8*size
		return ofInteger(int64(bits) << shift >> shift)
	}
	return ofNatural(bits)
}
