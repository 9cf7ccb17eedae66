-- +goose Up
CREATE TABLE IF NOT EXISTS "outbox" (
	id text PRIMARY KEY NOT NULL,
	"organizacion_id" text NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos text NOT NULL DEFAULT '{}' CHECK (json_valid(datos)),
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT 'pendiente' CHECK (estado IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado')),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	proximo_intento_en integer,
	bloqueado_hasta integer,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en integer,
	creado_en integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	actualizado_en integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	reclamo text,
	cabeceras text,
	dudas integer NOT NULL DEFAULT 0,
	vence_en integer,
	turno integer GENERATED ALWAYS AS (CASE WHEN estado IN ('pendiente', 'procesando') THEN max(programado_para, coalesce(proximo_intento_en, programado_para)) END) STORED,
	terminado integer GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN actualizado_en END) STORED
) STRICT;

CREATE UNIQUE INDEX IF NOT EXISTS "outbox_tenant_clave_idem_key" ON "outbox" ("organizacion_id", clave_idempotencia);

CREATE INDEX IF NOT EXISTS "outbox_turno_idx" ON "outbox" (canal, turno, id) WHERE turno IS NOT NULL;

CREATE INDEX IF NOT EXISTS "outbox_terminado_idx" ON "outbox" (terminado, id) WHERE terminado IS NOT NULL;
