package tompion

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/tompion/tompion/bindings/go/internal/filter"
	"github.com/tompion/tompion/bindings/go/internal/protocol"
)

// Label names the values from Low to High of an enumeration.
type Label struct {
	Low, High int64
	Name      string
}

// Enum is an integer type with names for its values. The method is called once, on the zero value.
//
//	type Outcome uint8
//
//	func (Outcome) TompionEnum() (string, []tompion.Label) {
//		return "outcome", tompion.Labels("done", "empty")
//	}
type Enum interface {
	TompionEnum() (name string, labels []Label)
}

// Labels names the values 0, 1, 2, ….
func Labels(names ...string) []Label {
	labels := make([]Label, len(names))
	for i, name := range names {
		labels[i] = Label{int64(i), int64(i), name}
	}
	return labels
}

// Codes of types in descriptions, see crates/schema/src/description.rs.
const (
	codeI8       = 1
	codeU8       = 5
	codeU64      = 8
	codeX8       = 9
	codeX64      = 12
	codeF32      = 13
	codeF64      = 14
	codeBool     = 15
	codeStr      = 16
	codeBytes    = 18
	codeArray    = 19
	codeSequence = 20
	codeEnum     = 21
	codeStruct   = 22

	fieldNetwork = 1
	fieldText    = 2
	fieldContext = 4

	maxFields = 1024
	maxDepth  = 8
	maxName   = 255
	maxTails  = 60
)

// stepKind is what a step of a plan does.
type stepKind uint8

const (
	copyBytes stepKind = iota
	copyString
	copySlice
	copyArray
)

// step moves one field, or several that lie side by side, from a value of Go into a record.
type step struct {
	kind   stepKind
	offset uintptr
	// size is the number of bytes; of a slice, those of an element.
	size uintptr
}

// plan says how a record is made of a value of Go.
type plan struct {
	steps []step
	// fixed is the length of the fixed part, tails the number of tails.
	fixed uintptr
	tails int
}

// describer builds a description and its plan.
type describer struct {
	plan
	fields, enums []byte
	// count is the number of fields with members, top that without.
	count, top int
	schema     []filter.Field
}

func fail(format string, arguments ...any) {
	panic("tompion: " + fmt.Sprintf(format, arguments...))
}

// checkName panics where a program declares an event by a name that is none: a mistake that shows
// at the first start.
func checkName(what, name string) {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		fail("expected the name of a %s, found %q", what, name)
	}
}

func isIdentifier(name string) bool {
	for i, c := range []byte(name) {
		isLetter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !isLetter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// snakeCase returns the name of a field by that of a Go field: `TableName` is `table_name`.
func snakeCase(name string) string {
	runes := []rune(name)
	var out strings.Builder
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			isEnd := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(runes[i-1]) && runes[i-1] != '_' || isEnd && runes[i-1] != '_' {
				out.WriteByte('_')
			}
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// tag is what a field's tag `tompion:"name,hex"` says.
type tag struct {
	name                     string
	isHex, isNetwork, isText bool
	// isList: bytes are a sequence of numbers.
	isList               bool
	isContext, isLeftOut bool
}

func readTag(field reflect.StructField) tag {
	name, rest, _ := strings.Cut(field.Tag.Get("tompion"), ",")
	read := tag{name: name, isLeftOut: name == "-"}
	for rest != "" {
		var word string
		word, rest, _ = strings.Cut(rest, ",")
		switch word {
		case "hex":
			read.isHex = true
		case "network":
			read.isNetwork = true
		case "text":
			read.isText = true
		case "list":
			read.isList = true
		case "context":
			read.isContext = true
		default:
			fail("expected hex, network, text, list or context in the tag of field %s, found %q", field.Name, word)
		}
	}
	if read.name == "" {
		read.name = snakeCase(field.Name)
	}
	if !read.isLeftOut && (!isIdentifier(read.name) || len(read.name) > maxName) {
		fail("expected an identifier of C as the name of field %s, found %q", field.Name, read.name)
	}
	return read
}

// addField adds one field's description, with the step that records it added by the caller.
func (d *describer) addField(name string, code, element byte, count uint32, flags uint16) {
	if d.count++; d.count > maxFields {
		fail("an event has at most %d fields", maxFields)
	}
	size := uint16(12 + len(name) + 1)
	d.fields = binary.LittleEndian.AppendUint16(d.fields, size)
	d.fields = append(d.fields, code, element)
	d.fields = binary.LittleEndian.AppendUint32(d.fields, count)
	d.fields = binary.LittleEndian.AppendUint16(d.fields, flags)
	d.fields = binary.LittleEndian.AppendUint16(d.fields, uint16(len(name)+1))
	d.fields = append(append(d.fields, name...), 0)
}

// addFixed adds a step for bytes of the fixed part. Neighbours become one step.
func (d *describer) addFixed(offset, size uintptr) {
	if last := len(d.steps) - 1; last >= 0 && d.steps[last].kind == copyBytes &&
		d.steps[last].offset+d.steps[last].size == offset {
		d.steps[last].size += size
	} else {
		d.steps = append(d.steps, step{copyBytes, offset, size})
	}
	d.fixed += size
}

// addTail adds a step for a field with a tail.
func (d *describer) addTail(kind stepKind, offset, size uintptr) {
	if d.tails++; d.tails > maxTails {
		fail("an event has at most %d texts, arrays and slices", maxTails)
	}
	d.steps = append(d.steps, step{kind, offset, size})
	if kind != copyArray {
		d.fixed += 4
	}
}

// addNumber adds a field of 64 bits that stands in no value of the program, and so has no step.
func (d *describer) addNumber(name string, code byte, flags uint16) {
	d.addField(name, code, 0, 0, flags)
	d.top++
	d.schema = append(d.schema, filter.Field{Name: name, Context: flags&fieldContext != 0,
		Type: filter.Type{Kind: filter.Integer, Size: 8}})
	d.fixed += 8
}

// integerCode returns the code of an integer type; 0 for others.
func integerCode(kind reflect.Kind, isHex bool) byte {
	code := byte(0)
	switch kind {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		code = codeI8 + byte(kind-reflect.Int8)
	case reflect.Int:
		code = codeI8 + 3
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		code = codeU8 + byte(kind-reflect.Uint8)
	case reflect.Uint:
		code = codeU64
	case reflect.Uintptr:
		return codeX64
	default:
		return 0
	}
	if isHex {
		return codeX8 + (code-codeI8)%4
	}
	return code
}

func (d *describer) addStruct(ty reflect.Type, base uintptr, depth int) (count int, schema []filter.Field) {
	if depth > maxDepth {
		fail("structures stand at most %d deep in others", maxDepth)
	}
	names := map[string]bool{}
	for i := range ty.NumField() {
		field := ty.Field(i)
		read := readTag(field)
		if read.isLeftOut {
			continue
		}
		if names[read.name] {
			fail("field %q of %s is there twice", read.name, ty)
		}
		names[read.name] = true
		described := d.addValue(field.Type, read, base+field.Offset, depth)
		schema = append(schema, filter.Field{Name: read.name, Context: depth == 0 && read.isContext, Type: described})
		count++
	}
	return count, schema
}

// addValue adds a field of a type.
func (d *describer) addValue(ty reflect.Type, read tag, offset uintptr, depth int) filter.Type {
	flags := uint16(0)
	if read.isContext && depth == 0 {
		flags |= fieldContext
	}
	if read.isNetwork {
		flags |= fieldNetwork
	}
	number := filter.Type{Size: uint8(min(ty.Size(), 8)), Network: read.isNetwork,
		Signed: ty.Kind() >= reflect.Int && ty.Kind() <= reflect.Int64}
	if code := integerCode(ty.Kind(), read.isHex); code != 0 {
		if enum, ok := reflect.Zero(ty).Interface().(Enum); ok {
			name, labels := enum.TompionEnum()
			d.addField(read.name, codeEnum, integerCode(ty.Kind(), false), 0, flags)
			number.Kind, number.Labels = filter.Enumeration, d.addEnum(name, labels, ty)
		} else {
			d.addField(read.name, code, 0, 0, flags)
			number.Kind = filter.Integer
		}
		d.addFixed(offset, ty.Size())
		return number
	}
	switch ty.Kind() {
	case reflect.Float32, reflect.Float64:
		code := byte(codeF32)
		if ty.Kind() == reflect.Float64 {
			code = codeF64
		}
		d.addField(read.name, code, 0, 0, flags)
		d.addFixed(offset, ty.Size())
		return filter.Type{Kind: filter.Float, Size: uint8(ty.Size())}
	case reflect.Bool:
		d.addField(read.name, codeBool, 0, 0, flags)
		d.addFixed(offset, 1)
		return filter.Type{Kind: filter.Integer, Size: 1}
	case reflect.String:
		d.addField(read.name, codeStr, 0, 0, flags)
		d.addTail(copyString, offset, 1)
		return filter.Type{Kind: filter.Text, Count: -1}
	case reflect.Slice, reflect.Array:
		return d.addList(ty, read, offset, flags)
	case reflect.Struct:
		before := len(d.fields)
		d.addField(read.name, codeStruct, 0, 0, flags)
		count, members := d.addStruct(ty, offset, depth+1)
		binary.LittleEndian.PutUint32(d.fields[before+4:], uint32(count))
		return filter.Type{Kind: filter.Structure, Members: members}
	}
	fail("expected a number, bool, string, slice, array or struct as field %s, found %s", read.name, ty)
	return filter.Type{}
}

// addList adds a slice or an array of integers.
func (d *describer) addList(ty reflect.Type, read tag, offset uintptr, flags uint16) filter.Type {
	element := ty.Elem()
	code := integerCode(element.Kind(), read.isHex)
	if code == 0 {
		fail("expected integers in field %s, found %s", read.name, ty)
	}
	isByte := element.Kind() == reflect.Uint8
	if read.isText && !isByte {
		fail("expected bytes in the text field %s, found %s", read.name, ty)
	}
	if read.isText {
		flags |= fieldText
	}
	described := filter.Type{Kind: filter.List, Size: uint8(element.Size()), Network: read.isNetwork,
		Signed: element.Kind() >= reflect.Int && element.Kind() <= reflect.Int64, Count: -1}
	if read.isText {
		described.Kind = filter.Text
	}
	if ty.Kind() == reflect.Array {
		described.Count = ty.Len()
		d.addField(read.name, codeArray, code, uint32(ty.Len()), flags)
		d.addTail(copyArray, offset, ty.Size())
		return described
	}
	if isByte && !read.isText && !read.isHex && !read.isList {
		d.addField(read.name, codeBytes, 0, 0, flags)
	} else {
		d.addField(read.name, codeSequence, code, 0, flags)
	}
	d.addTail(copySlice, offset, element.Size())
	return described
}

// addEnum adds an enumeration. Returns its labels as a filter sees them.
func (d *describer) addEnum(name string, labels []Label, ty reflect.Type) []filter.Label {
	checkName("enumeration", name)
	isUnsigned := ty.Kind() == reflect.Uint64 || ty.Kind() == reflect.Uint || ty.Kind() == reflect.Uintptr
	start := len(d.enums)
	d.enums = append(d.enums, "TEN1\x00\x00\x00\x00\x01\x00"...)
	d.enums = binary.LittleEndian.AppendUint16(d.enums, uint16(len(labels)))
	d.enums = binary.LittleEndian.AppendUint16(d.enums, uint16(len(name)+1))
	d.enums = append(append(d.enums, name...), 0)
	var described []filter.Label
	for _, label := range labels {
		checkName("label", label.Name)
		if isUnsigned && uint64(label.Low) > uint64(label.High) || !isUnsigned && label.Low > label.High {
			fail("label %q of %s has the empty range %d to %d", label.Name, name, label.Low, label.High)
		}
		d.enums = binary.LittleEndian.AppendUint64(d.enums, uint64(label.Low))
		d.enums = binary.LittleEndian.AppendUint64(d.enums, uint64(label.High))
		d.enums = binary.LittleEndian.AppendUint16(d.enums, uint16(len(label.Name)+1))
		d.enums = append(append(d.enums, label.Name...), 0)
		described = append(described, filter.NewLabel(label.Low, label.High, isUnsigned, label.Name))
	}
	binary.LittleEndian.PutUint32(d.enums[start+4:], uint32(len(d.enums)-start))
	return described
}

// finish returns the whole description.
func (d *describer) finish(names protocol.Names, isInit bool, format string) []byte {
	checkName("provider", names.Provider)
	checkName("event", names.Name)
	bytes := []byte("TEV1\x00\x00\x00\x00\x01\x00")
	bytes = append(bytes, byte(names.Kind), names.Level)
	flags := uint16(0)
	if isInit {
		flags = 1
	}
	bytes = binary.LittleEndian.AppendUint16(bytes, flags)
	bytes = binary.LittleEndian.AppendUint16(bytes, uint16(d.top))
	bytes = binary.LittleEndian.AppendUint16(bytes, uint16(len(names.Provider)+1))
	bytes = binary.LittleEndian.AppendUint16(bytes, uint16(len(names.Name)+1))
	bytes = append(append(bytes, names.Provider...), 0)
	bytes = append(append(bytes, names.Name...), 0)
	bytes = append(bytes, d.fields...)
	if names.Kind == protocol.Mark {
		if len(format) > 0x7fff {
			fail("a mark's format has at most %d bytes", 0x7fff)
		}
		bytes = binary.LittleEndian.AppendUint16(bytes, uint16(len(format)+4))
		bytes = append(append(append(bytes, 1), format...), 0)
	}
	binary.LittleEndian.PutUint32(bytes[4:], uint32(len(bytes)))
	return append(bytes, d.enums...)
}

// addFields adds the fields of a struct type.
func (d *describer) addFields(ty reflect.Type) {
	if ty.Kind() != reflect.Struct {
		fail("expected a struct with the fields of an event, found %s", ty)
	}
	count, schema := d.addStruct(ty, 0, 0)
	d.top += count
	d.schema = append(d.schema, schema...)
}

// argumentsOf returns a struct type of the same layout with the fields `arg1`, `arg2`, …, which get
// their names from a mark's format.
func argumentsOf(ty reflect.Type) reflect.Type {
	if ty.Kind() != reflect.Struct {
		fail("expected a struct with the arguments of a mark, found %s", ty)
	}
	fields := make([]reflect.StructField, ty.NumField())
	for i := range fields {
		fields[i] = reflect.StructField{
			Name: fmt.Sprintf("Arg%d", i+1), Type: ty.Field(i).Type,
			Tag: reflect.StructTag(fmt.Sprintf("tompion:\"arg%d\"", i+1)),
		}
	}
	return reflect.StructOf(fields)
}
