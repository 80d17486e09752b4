package filter

import (
	"bytes"
	"unicode/utf8"
)

// pattern is a text literal. Its bytes are escaped: a literal `*`, `?` or `\` has a `\` before it.
type pattern []byte

func (p pattern) push(c byte) pattern {
	if c == '*' || c == '?' || c == '\\' {
		p = append(p, '\\')
	}
	return append(p, c)
}

// plain returns the text that the pattern stands for; false if it has wildcards.
func (p pattern) plain() ([]byte, bool) {
	var plain []byte
	for at := 0; at < len(p); at++ {
		switch p[at] {
		case '\\':
			if at++; at < len(p) {
				plain = append(plain, p[at])
			}
		case '*', '?':
			return nil, false
		default:
			plain = append(plain, p[at])
		}
	}
	return plain, true
}

// character returns the length in bytes of the first character of a text; 1 for an invalid byte.
func character(text []byte) int {
	length := 1
	switch first := text[0]; {
	case 0xc2 <= first && first <= 0xdf:
		length = 2
	case 0xe0 <= first && first <= 0xef:
		length = 3
	case 0xf0 <= first && first <= 0xf4:
		length = 4
	}
	if len(text) < length {
		return 1
	}
	for _, next := range text[1:length] {
		if next&0xc0 != 0x80 {
			return 1
		}
	}
	return length
}

// matches says whether all of a text matches the pattern.
func (p pattern) matches(text []byte) bool {
	at, t, starAt, starText := 0, 0, -1, 0
	for {
		step, length := 0, 1
		switch {
		case at == len(p):
			if t == len(text) {
				return true
			}
		case p[at] == '*':
			at++
			starAt, starText = at, t
			continue
		case t == len(text):
		case p[at] == '?':
			step = character(text[t:])
		default:
			c := p[at]
			if c == '\\' && at+1 < len(p) {
				c, length = p[at+1], 2
			}
			if text[t] == c {
				step = 1
			}
		}
		if step > 0 {
			at, t = at+length, t+step
			continue
		}
		// The last star matched too little.
		if starAt < 0 || starText >= len(text) {
			return false
		}
		starText += character(text[starText:])
		at, t = starAt, starText
	}
}

// untilNUL returns a text up to its first NUL, which ends it in every trace.
func untilNUL(text []byte) []byte {
	if at := bytes.IndexByte(text, 0); at >= 0 {
		return text[:at]
	}
	return text
}

func isText(text []byte) bool { return utf8.Valid(text) }
