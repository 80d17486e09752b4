package filter

import (
	"math"
	"math/bits"
)

// repr is how a value is represented. Integers have one representation each.
type repr uint8

const (
	unknown  repr = iota
	natural       // an integer from 0
	negative      // an integer below 0
	float
)

// value is a number that may be unknown. Integers range from -2^63 to 2^64-1, and arithmetic is
// exact or unknown, as docs/design/filter.md says.
type value struct {
	repr repr
	bits uint64
}

func ofNatural(n uint64) value { return value{natural, n} }
func ofFloat(f float64) value  { return value{float, math.Float64bits(f)} }

func ofInteger(n int64) value {
	if n < 0 {
		return value{negative, uint64(n)}
	}
	return value{natural, uint64(n)}
}

func ofBool(b bool) value {
	if b {
		return value{natural, 1}
	}
	return value{natural, 0}
}

func (v value) isInteger() bool { return v.repr == natural || v.repr == negative }

// asFloat returns the nearest floating-point number; false for an unknown value.
func (v value) asFloat() (float64, bool) {
	switch v.repr {
	case natural:
		return float64(v.bits), true
	case negative:
		return float64(int64(v.bits)), true
	case float:
		return math.Float64frombits(v.bits), true
	}
	return 0, false
}

// truth says whether the number is not 0; the second result is false if it is unknown.
func (v value) truth() (isTrue, isKnown bool) {
	switch v.repr {
	case natural:
		return v.bits != 0, true
	case negative:
		return true, true
	case float:
		return math.Float64frombits(v.bits) != 0, true
	}
	return false, false
}

// parts returns sign and magnitude of an integer.
func (v value) parts() (isNegative bool, magnitude uint64) {
	if v.repr == negative {
		return true, -v.bits
	}
	return false, v.bits
}

// ofParts returns an integer; unknown if it is out of range.
func ofParts(isNegative bool, magnitude uint64) value {
	switch {
	case !isNegative || magnitude == 0:
		return ofNatural(magnitude)
	case magnitude > 1<<63:
		return value{}
	}
	return value{negative, -magnitude}
}

// comparison is a set of the orders for which it holds: 1 less, 2 equal, 4 greater, 8 unordered.
type comparison uint8

const (
	equal        comparison = 2
	notEqual     comparison = 1 | 4 | 8
	less         comparison = 1
	lessEqual    comparison = 1 | 2
	greater      comparison = 4
	greaterEqual comparison = 2 | 4
)

// compare returns the order of two known numbers.
func compare(left, right value) comparison {
	if left.repr == float && right.repr == float {
		return orderOf(math.Float64frombits(left.bits), math.Float64frombits(right.bits))
	}
	if left.repr == float {
		switch order := compareWithFloat(right, math.Float64frombits(left.bits)); order {
		case less:
			return greater
		case greater:
			return less
		default:
			return order
		}
	}
	if right.repr == float {
		return compareWithFloat(left, math.Float64frombits(right.bits))
	}
	if left.repr != right.repr {
		if left.repr == negative {
			return less
		}
		return greater
	}
	// Of two negative numbers, the larger has the larger bits, too.
	return orderOf(left.bits, right.bits)
}

func orderOf[T uint64 | float64](left, right T) comparison {
	switch {
	case left < right:
		return less
	case left == right:
		return equal
	case left > right:
		return greater
	}
	return 8
}

// compareWithFloat returns the order of an integer and a floating-point number, by exact values.
func compareWithFloat(integer value, f float64) comparison {
	switch {
	case f != f:
		return 8
	case f >= 1<<64:
		return less
	case f < -1<<63:
		return greater
	}
	whole := math.Trunc(f)
	as := ofNatural(0)
	if whole < 0 {
		as = ofInteger(int64(whole))
	} else {
		as = ofNatural(uint64(whole))
	}
	if order := compare(integer, as); order != equal {
		return order
	}
	return orderOf(whole, f)
}

func (c comparison) apply(left, right value) value {
	if left.repr == unknown || right.repr == unknown {
		return value{}
	}
	return ofBool(c&compare(left, right) != 0)
}

// arithmetic is an operation on two numbers.
type arithmetic uint8

const (
	bitOr arithmetic = iota
	bitXor
	bitAnd
	shiftLeft
	shiftRight
	add
	subtract
	multiply
	divide
	remainder
)

func (a arithmetic) isIntegral() bool { return a < add || a == remainder }

func (a arithmetic) apply(left, right value) value {
	if left.isInteger() && right.isInteger() {
		return a.applyIntegers(left, right)
	}
	l, isKnown := left.asFloat()
	r, isKnownToo := right.asFloat()
	if !isKnown || !isKnownToo {
		return value{}
	}
	switch {
	case a == add:
		return ofFloat(l + r)
	case a == subtract:
		return ofFloat(l - r)
	case a == multiply:
		return ofFloat(l * r)
	case a == divide && r != 0:
		return ofFloat(l / r)
	}
	return value{}
}

func (a arithmetic) applyIntegers(left, right value) value {
	leftSign, l := left.parts()
	rightSign, r := right.parts()
	switch a {
	case bitOr:
		return ofBits(leftSign || rightSign, left.bits|right.bits)
	case bitXor:
		return ofBits(leftSign != rightSign, left.bits^right.bits)
	case bitAnd:
		return ofBits(leftSign && rightSign, left.bits&right.bits)
	case shiftLeft, shiftRight:
		if rightSign {
			return value{}
		}
		return shift(a, left, r)
	case subtract:
		return sum(leftSign, l, !rightSign, r)
	case add:
		return sum(leftSign, l, rightSign, r)
	case multiply:
		high, low := bits.Mul64(l, r)
		if high != 0 {
			return value{}
		}
		return ofParts(leftSign != rightSign, low)
	case divide:
		if r == 0 {
			return value{}
		}
		return ofParts(leftSign != rightSign, l/r)
	case remainder:
		if r == 0 {
			return value{}
		}
		return ofParts(leftSign, l%r)
	}
	return value{}
}

func sum(leftSign bool, left uint64, rightSign bool, right uint64) value {
	if leftSign == rightSign {
		total, carry := bits.Add64(left, right, 0)
		if carry != 0 {
			return value{}
		}
		return ofParts(leftSign, total)
	}
	if left >= right {
		return ofParts(leftSign, left-right)
	}
	return ofParts(rightSign, right-left)
}

// ofBits returns the integer with this sign and these lowest 64 bits, in two's complement; the bits
// alone if it is out of range.
func ofBits(isNegative bool, low uint64) value {
	if isNegative && int64(low) < 0 {
		return value{negative, low}
	}
	return ofNatural(low)
}

func shift(a arithmetic, left value, by uint64) value {
	isNegative := left.repr == negative
	switch {
	case a == shiftRight && isNegative:
		return ofInteger(int64(left.bits) >> min(by, 63))
	case a == shiftRight && by < 64:
		return ofNatural(left.bits >> by)
	case by >= 64:
		return ofNatural(0)
	case isNegative && int64(left.bits)<<by>>by != int64(left.bits):
		return ofNatural(left.bits << by)
	}
	return ofBits(isNegative, left.bits<<by)
}

// unary is an operation on one number.
type unary uint8

const (
	not unary = iota
	complement
	negate
)

func (u unary) apply(v value) value {
	switch {
	case v.repr == unknown:
	case u == not:
		isTrue, _ := v.truth()
		return ofBool(!isTrue)
	case u == complement && v.isInteger():
		return ofBits(v.repr == natural, ^v.bits)
	case u == negate && v.repr == float:
		return ofFloat(-math.Float64frombits(v.bits))
	case u == negate:
		isNegative, magnitude := v.parts()
		return ofParts(!isNegative, magnitude)
	}
	return value{}
}

// logic is `&&` or `||`, by Kleene's rules.
type logic uint8

const (
	and logic = iota
	or
)

func (l logic) apply(left, right value) value {
	leftTruth, isKnown := left.truth()
	rightTruth, isKnownToo := right.truth()
	decisive := l == or
	if isKnown && leftTruth == decisive || isKnownToo && rightTruth == decisive {
		return ofBool(decisive)
	}
	if isKnown && isKnownToo {
		return ofBool(!decisive)
	}
	return value{}
}
