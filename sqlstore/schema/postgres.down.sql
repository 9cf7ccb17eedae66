-- +goose Down
DROP TABLE "outbox";
