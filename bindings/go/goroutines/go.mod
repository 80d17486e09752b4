module github.com/tompion/tompion/bindings/go/goroutines

go 1.24.0

require golang.org/x/exp v0.0.0-20251023183803-a4bb9ffd2546
