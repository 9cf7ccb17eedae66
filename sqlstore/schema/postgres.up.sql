-- +goose Up
CREATE TABLE IF NOT EXISTS "outbox" (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	"organizacion_id" uuid NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos jsonb NOT NULL DEFAULT '{}',
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT 'pendiente' CHECK (estado IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado')),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para timestamptz NOT NULL DEFAULT now(),
	proximo_intento_en timestamptz,
	bloqueado_hasta timestamptz,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en timestamptz,
	creado_en timestamptz NOT NULL DEFAULT now(),
	actualizado_en timestamptz NOT NULL DEFAULT now(),
	reclamo uuid,
	cabeceras jsonb,
	dudas smallint NOT NULL DEFAULT 0,
	vence_en timestamptz,
	turno timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ('pendiente', 'procesando') THEN greatest(programado_para, proximo_intento_en) END) STORED,
	terminado timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN actualizado_en END) STORED
);

CREATE UNIQUE INDEX IF NOT EXISTS "outbox_tenant_clave_idem_key" ON "outbox" ("organizacion_id", clave_idempotencia);

CREATE INDEX IF NOT EXISTS "outbox_turno_idx" ON "outbox" (canal, turno, id) WHERE turno IS NOT NULL;

CREATE INDEX IF NOT EXISTS "outbox_terminado_idx" ON "outbox" (terminado, id) WHERE terminado IS NOT NULL;
