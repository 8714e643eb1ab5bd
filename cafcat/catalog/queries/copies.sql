-- How many copies are there in each store, and how many did a migration leave behind?
-- `cafcat query copies-in` lists those of one store.
SELECT store, state, retired_at IS NOT NULL AS is_left_behind, count(*) AS copies
FROM chunk_copies WHERE deleted_at IS NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
