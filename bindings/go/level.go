package tompion

// Level is how severe an event is: smaller is more severe. The numbers are those of LTTng and
// syslog. A level is an option of [NewEvent] and its kin.
type Level uint8

// Levels.
const (
	Emerg Level = iota
	Alert
	Crit
	Err
	Warning
	Notice
	Info
	DebugSystem
	DebugProgram
	DebugProcess
	DebugModule
	DebugUnit
	DebugFunction
	// DebugLine is the level of an event without one.
	DebugLine
	Debug
)

// Option is an option of an event: a [Level], or [Init].
type Option interface{ apply(*settings) }

type settings struct {
	level  Level
	isInit bool
}

func (l Level) apply(s *settings) { s.level = min(l, Debug) }

type initOption struct{}

func (initOption) apply(s *settings) { s.isInit = true }

// Init marks an event as part of the initial state, which a flight recorder never overwrites.
var Init Option = initOption{}

func settingsOf(options []Option) settings {
	s := settings{level: DebugLine}
	for _, option := range options {
		option.apply(&s)
	}
	return s
}
