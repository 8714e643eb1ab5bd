-- Which copies are there in each store, and which did a migration leave behind?
SELECT store, state, retired_at IS NOT NULL AS is_left_behind, count(*) AS copies
FROM chunk_copies GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
