// Package protocol has the messages between this agent and a session, the rules by which events are
// enabled, and the names by which both find each other. It is crates/protocol in Go.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Version of the protocol.
const Version = 1

// MaxMessage is the maximum size of a message in bytes.
const MaxMessage = 16 * 1024

// MaxRecordings is the number of recordings that a process can be part of.
const MaxRecordings = 8

// Origin is the reason why a process has an agent.
type Origin uint32

// Origins.
const (
	OriginExec    Origin = 0
	OriginRequest Origin = 2
)

// Hello is the first message of an agent.
type Hello struct {
	PID         uint32
	Origin      Origin
	HasSections bool
	HasCounter  bool
	HasListener bool
	Version     string
	Name        string
	Executable  string
	CPU         uint32
	ControlSize uint64
}

const (
	kindHello        = 1
	kindFailed       = 2
	kindWelcome      = 101
	kindRefused      = 102
	kindRulesChanged = 103
	kindPopulate     = 104
	kindJoin         = 105
	kindPrepared     = 106

	flagRseq              = 1
	flagTSC               = 1 << 1
	flagNoListener        = 1 << 2
	flagHasCPU            = 1 << 4
	flagHasControlSize    = 1 << 5
	flagNoticesWithdrawal = 1 << 8
)

func begin(kind uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), Version)
}

// appendText appends a text, cut to a quarter of the maximum message.
func appendText(bytes []byte, text string) []byte {
	if len(text) > MaxMessage/4 {
		end := MaxMessage / 4
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return append(binary.LittleEndian.AppendUint32(bytes, uint32(len(text))), text...)
}

// Encode returns the message as one packet.
func (h *Hello) Encode() []byte {
	flags := uint32(flagHasCPU | flagHasControlSize | flagNoticesWithdrawal)
	if h.HasSections {
		flags |= flagRseq
	}
	if h.HasCounter {
		flags |= flagTSC
	}
	if !h.HasListener {
		flags |= flagNoListener
	}
	bytes := begin(kindHello)
	bytes = binary.LittleEndian.AppendUint32(bytes, h.PID)
	bytes = binary.LittleEndian.AppendUint32(bytes, uint32(h.Origin))
	bytes = binary.LittleEndian.AppendUint32(bytes, flags)
	bytes = appendText(bytes, h.Version)
	bytes = appendText(bytes, h.Name)
	bytes = appendText(bytes, h.Executable)
	bytes = binary.LittleEndian.AppendUint32(bytes, h.CPU)
	return binary.LittleEndian.AppendUint64(bytes, h.ControlSize)
}

// EncodeFailed returns the message that the process could not take part, with the reason.
func EncodeFailed(reason string) []byte { return appendText(begin(kindFailed), reason) }

// Message is a message from a session.
type Message interface{ isMessage() }

type (
	// Welcome is the acceptance. The memory files come with it.
	Welcome struct{}
	// Refused is a refusal, with its reason.
	Refused struct{ Reason string }
	// RulesChanged says that the rules have changed.
	RulesChanged struct{}
	// Populate asks for bytes of the ring file to be made present.
	Populate struct{ Offset, Size uint64 }
	// Join asks the process to take part in the session with a name.
	Join struct{ Name string }
	// Prepared is memory for a child, which programs of Go don't fork.
	Prepared struct{}
)

func (Welcome) isMessage()      {}
func (Refused) isMessage()      {}
func (RulesChanged) isMessage() {}
func (Populate) isMessage()     {}
func (Join) isMessage()         {}
func (Prepared) isMessage()     {}

var errCut = errors.New("a message is cut off")

// Decode reads a message from a session, which is not trusted.
func Decode(packet []byte) (Message, error) {
	rest := packet
	u32 := func() (uint32, bool) {
		if len(rest) < 4 {
			return 0, false
		}
		value := binary.LittleEndian.Uint32(rest)
		rest = rest[4:]
		return value, true
	}
	kind, _ := u32()
	version, ok := u32()
	if !ok {
		return nil, errCut
	}
	if version != Version {
		return nil, fmt.Errorf("the other side speaks version %d, this one %d", version, Version)
	}
	switch kind {
	case kindWelcome:
		return Welcome{}, nil
	case kindRulesChanged:
		return RulesChanged{}, nil
	case kindPrepared:
		return Prepared{}, nil
	case kindRefused, kindJoin:
		size, ok := u32()
		if !ok || uint64(size) > uint64(len(rest)) {
			return nil, errCut
		}
		text := string(rest[:size])
		if kind == kindJoin {
			return Join{text}, nil
		}
		return Refused{text}, nil
	case kindPopulate:
		if len(rest) < 16 {
			return nil, errCut
		}
		return Populate{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])}, nil
	}
	return nil, fmt.Errorf("unknown message %d", kind)
}
