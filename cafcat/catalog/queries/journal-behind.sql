-- Which changes of the catalog are not yet in the journals of all stores?
-- A rebuild from a store needs its journal. recover writes the missing records.
SELECT id, happened_at, kind, unwritten FROM journal WHERE unwritten <> '{}' ORDER BY id;
