-- Three roles, each with no more than it needs: name them, and the logins that get them, as you like.

-- The application, which enqueues. It reads back what holds a key.
CREATE ROLE recado_enqueue;
GRANT INSERT, SELECT ON "outbox" TO recado_enqueue;

-- The worker. One with transactional lanes enqueues too.
CREATE ROLE recado_worker;
GRANT SELECT, UPDATE ON "outbox" TO recado_worker;

-- Whoever purges. The lock that keeps it out of others' way takes the right to update.
CREATE ROLE recado_purge;
GRANT SELECT, UPDATE, DELETE ON "outbox" TO recado_purge;
