-- Which folders of one level are the largest?
-- :depth INTEGER Level of the folders: 1 for those at the top. Example: 1
SELECT folder_path, files, bytes FROM cafcat_ops.folders WHERE depth = :depth ORDER BY bytes DESC, folder_path LIMIT 20;
