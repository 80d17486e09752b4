module github.com/tompion/tompion/bindings/go

go 1.22
