package protocol

import (
	"strconv"
	"strings"
)

// Kind is the kind of an event, see crates/schema/src/lib.rs.
type Kind uint8

// Kinds of events.
const (
	Instant Kind = 0
	Begin   Kind = 1
	End     Kind = 2
	Counter Kind = 3
	Flow    Kind = 4
	Job     Kind = 5
	Mark    Kind = 6
)

// Names are the properties of an event against which rules are matched.
type Names struct {
	Provider, Name string
	Level          uint8
	Kind           Kind
}

// base returns the name of the span that the event begins or ends; else the event's own.
func (n *Names) base() string {
	suffix := ""
	switch n.Kind {
	case Begin, Job:
		suffix = "_begin"
	case End:
		suffix = "_end"
	}
	if base := strings.TrimSuffix(n.Name, suffix); suffix != "" && base != "" {
		return base
	}
	return n.Name
}

// Filter returns the filter in rules given as text; empty if there is none.
func Filter(rules string) string {
	for _, line := range strings.Split(rules, "\n") {
		if filter, ok := strings.CutPrefix(line, "? "); ok {
			return filter
		}
	}
	return ""
}

// Take says whether rules given as text record this event. Invalid lines are passed over.
func Take(rules string, event *Names) bool {
	isTaken := false
	for _, line := range strings.Split(rules, "\n") {
		head, pattern, ok := strings.Cut(line, " ")
		if !ok || head == "" {
			continue
		}
		least, err := strconv.ParseUint(head[1:], 10, 8)
		if err != nil || uint64(event.Level) > least || !matchesEvent(pattern, event) {
			continue
		}
		switch head[0] {
		case '+':
			isTaken = true
		case '-':
			return false
		}
	}
	return isTaken
}

func matchesEvent(pattern string, event *Names) bool {
	if matchesName(pattern, event.Provider, event.Name) {
		return true
	}
	base := event.base()
	return len(base) < len(event.Name) && matchesName(pattern, event.Provider, base)
}

// matchesName matches a glob against `provider:name`; one without a colon against either part.
func matchesName(pattern, provider, name string) bool {
	if left, right, ok := strings.Cut(pattern, ":"); ok {
		return matches(left, provider) && matches(right, name)
	}
	return matches(pattern, name) || matches(pattern, provider)
}

// matches says whether the whole of a text matches a glob of `*` and `?`.
func matches(pattern, text string) bool {
	p, t, starPattern, starText := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			starPattern, starText = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case starPattern >= 0:
			starText++
			p, t = starPattern+1, starText
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
