module github.com/tompion/tompion/benches/go

go 1.22

require github.com/tompion/tompion/bindings/go v0.0.0

replace github.com/tompion/tompion/bindings/go => ../../bindings/go
