/* Checks files of a chunk against their rows in the catalog. */
#include "native.h"

/* Passes over the rows from rows[*at] on whose files are right: their bytes follow each other from *position on, are
 * in the block, have the checksum, and need no decoding. Returns the number of these rows, and moves both positions.
 *
 * The block has the bytes [block_start, block_start + block_size) of the chunk, and *position is one of them or their end. */
EXPORTED int64_t cafcat_check_rows(const uint8_t *rows, int64_t rows_size, int64_t *at, const uint8_t *block,
                                   int64_t block_start, int64_t block_size, int64_t *position)
{
    const int64_t block_end = block_start + block_size;
    int64_t count = 0;
    for (;; count++) {
        const uint8_t *const row = rows + *at;
        const int64_t path_bytes = cafcat_row_path_bytes(row, rows_size - *at);
        if (path_bytes < 0)
            break;
        const int64_t start = cafcat_row_start(row), end = cafcat_row_end(row);
        if (start != *position || end < start || end > block_end || !cafcat_row_is_not_decoded(row, path_bytes))
            break;
        if (cafcat_crc32c(block + (start - block_start), (size_t)(end - start), 0) != cafcat_row_checksum(row))
            break;
        *at += ROW_HEAD_BYTES + path_bytes + ROW_TAIL_BYTES;
        *position = end;
    }
    return count;
}
