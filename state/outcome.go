package state

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Outcome is what one call to a provider came to: {OK, ExternalID}, or {Category, Code} with what is known beside it.
// Neither field may carry an address, a body, a key or a provider's text: categories and codes are machine words.
//
// It prints and logs without its external id, since some providers wrap the recipient's number in theirs.
type Outcome struct {
	OK         bool
	ExternalID string // the provider's id of the accepted message; "" when it gave none

	Category string // decides the class, see Classify
	Code     string // for people and panels, at most 64 characters

	RetryAfter time.Duration // the provider's own wait; it only ever lengthens ours, and is capped
	Ambiguous  bool          // the provider may have taken it
	NotCalled  bool          // it certainly did not go out
	Account    bool          // the credential or account is at fault, not this message
}

// String shows everything but the external id.
func (o Outcome) String() string {
	type bare Outcome // has no String
	o.ExternalID = withheld(o.ExternalID)
	return fmt.Sprintf("%+v", bare(o))
}

// GoString keeps %#v from printing the external id.
func (o Outcome) GoString() string { return o.String() }

// LogValue keeps log/slog from printing the external id.
func (o Outcome) LogValue() slog.Value { return slog.StringValue(o.String()) }

// withheld says whether there is something, and not what.
func withheld(s string) string {
	if s == "" {
		return ""
	}
	return "(withheld)"
}

// Class is what an outcome means for the row.
type Class string

// The three classes, with the reference's words.
const (
	ClassOK        Class = "ok"
	ClassTransient Class = "transitorio"
	ClassPermanent Class = "permanente"
)

// The categories with a fixed class. Any other category is transient.
const (
	CategoryNetwork             = "red"
	CategoryRateLimit           = "limite"
	CategoryIdempotencyConflict = "conflicto_idempotencia" // retried after at least 60 s

	CategoryCredentials = "credenciales"
	CategoryRejected    = "rechazado"
	CategoryBilling     = "facturacion"
	CategoryTemplate    = "plantilla"
	CategoryNumber      = "numero"
	CategoryWindow      = "ventana"
)

// The codes that Recado itself writes.
const (
	CodeTimeout           = "timeout"                   // red: the call outlived its timeout
	CodePanic             = "transporte_excepcion"      // red: the transport panicked
	CodeMalformed         = "resultado_invalido"        // red: the transport gave no usable outcome
	CodeNoTransport       = "transporte_no_configurado" // credenciales: nobody serves the channel
	CodeNoCredentials     = "sin_credenciales"          // credenciales: the tenant has none
	CodeCredentialsLookup = "credenciales_excepcion"    // red: the look-up failed
	CodeRender            = "render"                    // plantilla: the template could not be rendered
	CodeBadData           = "datos_invalidos"           // plantilla: the stored data is not JSON
	CodeBadKey            = "clave_invalida"            // rechazado: the stored key cannot travel to a provider
	CodeLeaseExhausted    = "lease_agotado"             // red: the last allowed attempt never came back
	CodeAttemptsExhausted = "intentos_agotados"         // red: found waiting with its attempts used up
	CodeExpired           = "vencido"                   // red: its deliver-by time had passed
	CodeUnreachable       = "inalcanzable"              // red: nothing went out for MaxAge
	CodeAmbiguous         = "ambiguo"                   // red: held, since the provider may have taken it
	CodeCancelled         = "cancelado"                 // rechazado: withdrawn by an operator
)

var (
	transientCategories = []string{CategoryNetwork, CategoryRateLimit, CategoryIdempotencyConflict}
	permanentCategories = []string{CategoryCredentials, CategoryRejected, CategoryBilling, CategoryTemplate, CategoryNumber, CategoryWindow}
)

// TransientCategories returns the catalogued categories that may pass. An uncatalogued category is transient too.
func TransientCategories() []string { return slices.Clone(transientCategories) }

// PermanentCategories returns the categories that discard a row at once.
func PermanentCategories() []string { return slices.Clone(permanentCategories) }

// Classify says what an outcome means. Only OK and the category count, never the code; what is not catalogued is
// transient, the safe default.
func Classify(o Outcome) Class {
	switch {
	case o.OK:
		return ClassOK
	case slices.Contains(permanentCategories, o.Category):
		return ClassPermanent
	}
	return ClassTransient
}

// Transient marks an error as one that may pass. A render or a parameter function that reads a database wraps its
// error with it to ask for a retry; any other error from there discards the row. Transient(nil) is nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transientError{err}
}

// IsTransient reports whether err, or an error it wraps, was marked with [Transient].
func IsTransient(err error) bool {
	var t *transientError
	return errors.As(err, &t)
}

type transientError struct{ err error }

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }
