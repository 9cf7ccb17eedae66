// A module of its own keeps bbolt out of the dependencies of the library.
module github.com/recado-dev/recado/examples/customstore

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/recado-dev/recado v0.0.0
	go.etcd.io/bbolt v1.5.0
)

require (
	github.com/looplab/fsm v1.0.3 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/recado-dev/recado => ../..
