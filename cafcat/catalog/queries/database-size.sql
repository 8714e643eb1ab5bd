-- How large are the tables of the catalog, with their indexes?
SELECT coalesce(p.relname, c.relname) AS table_name, sum(pg_total_relation_size(c.oid))::bigint AS bytes
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid LEFT JOIN pg_class AS p ON p.oid = i.inhparent
WHERE c.relkind = 'r' AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'chunks'::regclass)
GROUP BY 1 ORDER BY bytes DESC;
