//go:build !linux || !(amd64 || arm64)

package tompion

// addEvent does nothing: no session reaches this platform, and the event stays disabled.
func addEvent(*core, bool) {}
