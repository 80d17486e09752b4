package tompion

import (
	"strconv"
	"strings"

	"github.com/tompion/tompion/bindings/go/internal/filter"
)

// nameArguments gives the fields of a mark the names that a session derives from its format: the
// identifier directly before a conversion, as docs/design/events.md says. Filters know those names.
func nameArguments(format string, fields []filter.Field) {
	before, isBehind, next := "", false, 1
	for format != "" {
		text, rest, isConversion := strings.Cut(format, "%")
		before, format = before+text, rest
		if !isConversion {
			return
		}
		conversion, argument, ok := scanConversion(format, &next)
		if !ok {
			before += "%"
			continue
		}
		letter := format[conversion-1]
		format = format[conversion:]
		if letter == '%' {
			before += "%"
			continue
		}
		word := wordBefore(before, isBehind)
		before, isBehind = "", true
		for i := range fields {
			if argument != 0 && fields[i].Name == "arg"+strconv.Itoa(argument) {
				if name := uniqueName(word, fields); name != "" {
					fields[i].Name = name
				}
				break
			}
		}
	}
}

// scanConversion scans a conversion behind its `%`. Returns its length, and the number of its
// argument: 0 for one without.
func scanConversion(text string, next *int) (length, argument int, ok bool) {
	at := 0
	digits := func() int {
		number := 0
		for at < len(text) && '0' <= text[at] && text[at] <= '9' {
			number = min(number*10+int(text[at]-'0'), 1<<30)
			at++
		}
		return number
	}
	take := func() int { *next++; return *next - 1 }
	position := func() int {
		start := at
		if number := digits(); number > 0 && at < len(text) && text[at] == '$' {
			at++
			return number
		}
		at = start
		return 0
	}
	size := func() {
		if at < len(text) && text[at] == '*' {
			at++
			if position() == 0 {
				take()
			}
			return
		}
		digits()
	}
	before := *next
	argument = position()
	at += len(text[at:]) - len(strings.TrimLeft(text[at:], "-+ #0'I"))
	size()
	if at < len(text) && text[at] == '.' {
		at++
		size()
	}
	if at < len(text) && text[at] == 'w' {
		at++
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], "f0123456789"))
	} else {
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], "hlqLjzZt"))
	}
	if at == len(text) || !strings.ContainsRune("%mdiouxXbBeEfFgGaAcCsSpn", rune(text[at])) {
		*next = before
		return 0, 0, false
	}
	if text[at] == '%' || text[at] == 'm' {
		return at + 1, 0, true
	}
	if argument == 0 {
		argument = take()
	}
	return at + 1, argument, true
}

// wordBefore returns the identifier at the end of a text before a conversion; empty if there is
// none.
func wordBefore(text string, isBehind bool) string {
	text = strings.TrimSuffix(strings.TrimSuffix(text, "0x"), "0X")
	text = strings.TrimRight(text, " \t\n\r\f=:\"'([{<#")
	start := len(text)
	for start > 0 && (isIdentifier("_" + text[start-1:start])) {
		start--
	}
	word := text[start:]
	isUnit := isBehind && start == 0
	digits := strings.TrimPrefix(word, "arg")
	isArgument := digits != word && digits != "" && strings.Trim(digits, "0123456789") == ""
	if isUnit || isArgument || !isIdentifier(word) {
		return ""
	}
	return word
}

// uniqueName returns the word, or the word with the first number that makes it unique.
func uniqueName(word string, fields []filter.Field) string {
	isTaken := func(name string) bool {
		for i := range fields {
			if fields[i].Name == name {
				return true
			}
		}
		return false
	}
	name := word
	for number := 2; word != "" && isTaken(name); number++ {
		name = word + "_" + strconv.Itoa(number)
	}
	if len(name) > maxName {
		return ""
	}
	return name
}
