package simulation

import (
	"github.com/recado-dev/recado/dispatch"
	"github.com/recado-dev/recado/store/storetest"
)

// flaw is a deliberate mistake: the simulation has to find it.
type flaw struct {
	store      func(storetest.Complete) storetest.Complete
	lane       func(dispatch.Lane) dispatch.Lane // what the worker is really given
	sendsAgain bool                              // the transport repeats what was accepted
}
