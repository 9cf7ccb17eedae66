package email_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing/fstest"

	"github.com/recado-dev/recado/state"
	"github.com/recado-dev/recado/transports"
	"github.com/recado-dev/recado/transports/email"
)

// inbox is a sender that prints. Real ones live in packages of their own.
var inbox = email.SenderFunc(func(_ context.Context, m email.Mail) state.Outcome {
	fmt.Printf("to %s: %s\n%s\n", m.To, m.Subject, m.Text)
	return state.Outcome{OK: true, ExternalID: "1"}
})

// Templates from files: in an application fsys is an embed.FS or os.DirFS.
func ExampleTemplates() {
	fsys := fstest.MapFS{
		"confirmacion_pedido.txt":  {Data: []byte(`{{define "subject"}}Pedido {{.id}} confirmado{{end}}Gracias, {{.nombre}}.`)},
		"confirmacion_pedido.html": {Data: []byte(`<p>Gracias, {{.nombre}}.</p>`)},
	}
	mail, err := email.New(email.Config{From: "Mi Club <hola@club.example>", Sender: inbox, Render: email.Templates(fsys)})
	if err != nil {
		fmt.Println(err)
		return
	}
	o := mail.Send(context.Background(), transports.Message{
		Destination: "ana@casa.example", Template: "confirmacion_pedido",
		Data: json.RawMessage(`{"id": 9007199254740993, "nombre": "Ana"}`), IdempotencyKey: "club-1:confirmacion-pedido-7",
	})
	fmt.Println(state.Classify(o))
	// Output:
	// to ana@casa.example: Pedido 9007199254740993 confirmado
	// Gracias, Ana.
	// ok
}

// A function as the renderer. What it cannot render for good is discarded; what may pass is marked.
func ExampleRenderFunc() {
	render := func(_ context.Context, m transports.Message) (email.Content, error) {
		switch m.Template {
		case "bienvenida":
			return email.Content{Subject: "Hola!", Text: "Te damos la bienvenida."}, nil
		case "resumen":
			return email.Content{}, state.Transient(errors.New("the report is not ready"))
		}
		return email.Content{}, errors.New("unknown template")
	}
	mail, err := email.New(email.Config{From: "hola@club.example", Sender: inbox, Render: email.RenderFunc(render)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, template := range []string{"bienvenida", "resumen", "otra"} {
		o := mail.Send(context.Background(), transports.Message{Destination: "ana@casa.example", Template: template})
		fmt.Printf("%s: %s (%s)\n", template, state.Classify(o), o.Code)
	}
	// Output:
	// to ana@casa.example: Hola!
	// Te damos la bienvenida.
	// bienvenida: ok ()
	// resumen: transitorio (render)
	// otra: permanente (render)
}

// A renderer that wraps the templates adds what they do not hold.
func ExampleExtras() {
	pages := email.Templates(fstest.MapFS{"factura.txt": {Data: []byte(`{{define "subject"}}Tu factura{{end}}Va adjunta.`)}})
	render := email.RenderFunc(func(ctx context.Context, m transports.Message) (email.Content, error) {
		c, err := pages.Render(ctx, m)
		c.ReplyTo = "Administración <administracion@club.example>"
		c.Attachments = []email.Attachment{{Name: "factura.pdf", Type: "application/pdf", Content: []byte("%PDF-1.7")}}
		return c, err
	})
	sender := email.SenderFunc(func(_ context.Context, m email.Mail) state.Outcome {
		fmt.Println(m.Subject, m.ReplyTo, m.Attachments[0].Name)
		return state.Outcome{OK: true}
	})
	mail, err := email.New(email.Config{From: "Mi Club <hola@club.example>", Sender: sender, Render: render})
	if err != nil {
		fmt.Println(err)
		return
	}
	mail.Send(context.Background(), transports.Message{Destination: "ana@casa.example", Template: "factura"})
	// Output: Tu factura Administración <administracion@club.example> factura.pdf
}
