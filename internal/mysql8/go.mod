// The MySQL dialect's statements under a grammar of MySQL 8. A module of its own keeps the parser out of the
// dependencies of the library.
module github.com/recado-dev/recado/internal/mysql8

go 1.26.2

replace github.com/recado-dev/recado => ../..

require (
	github.com/DATA-DOG/go-sqlmock v1.5.2
	github.com/recado-dev/recado v0.0.0
	vitess.io/vitess v0.24.0
)

require (
	github.com/golang/glog v1.2.5 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lib/pq v1.12.3 // indirect
	github.com/lmittmann/tint v1.1.3 // indirect
	github.com/looplab/fsm v1.0.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20250313105119-ba97887b0a25 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260414002931-afd174a4e478 // indirect
	google.golang.org/grpc v1.80.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
