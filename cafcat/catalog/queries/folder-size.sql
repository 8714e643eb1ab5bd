-- How many files and bytes are in a folder?
-- :folder FOLDER The folder; empty for everything. Example: photos/
SELECT files, bytes FROM cafcat_ops.folders
WHERE depth = length(:folder) - length(replace(:folder, '/', '')) AND folder_path = :folder;
