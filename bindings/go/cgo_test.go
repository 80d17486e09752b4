//go:build linux && cgo

package tompion_test

// With it, the recorded programs are ones with cgo, whose threads are those of the C library.
import _ "runtime/cgo"
