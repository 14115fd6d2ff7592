-- Finds the calls under an idempotency key.
CREATE INDEX calls_of_key ON cofferdam.calls (key) WHERE key IS NOT NULL;
