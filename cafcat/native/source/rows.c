/* Checks files of a chunk against their rows in the catalog, as COPY_ROWS of cafcat/catalog/chunks/rows.py returns them in
 * the binary format of COPY: a number of fields, then the length and the bytes of each field, all big-endian. */
#include "native.h"

#include <string.h>

#define HEAD_BYTES 66 /* the number of fields, five fields of 8 bytes, and the length of the path */
#define TAIL_BYTES 8  /* content_bytes and decoding, both NULL */

/* Passes over the rows from rows[*at] on whose files are right: their bytes follow each other from *position on, are
 * in the block, have the checksum, and need no decoding. Returns the number of these rows, and moves both positions.
 *
 * The block has the bytes [block_start, block_start + block_size) of the chunk, and *position is one of them or their end. */
EXPORTED int64_t cafcat_check_rows(const uint8_t *rows, int64_t rows_size, int64_t *at, const uint8_t *block,
                                   int64_t block_start, int64_t block_size, int64_t *position)
{
    static const uint8_t no_decoding[TAIL_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255};
    const int64_t block_end = block_start + block_size;
    int64_t count = 0;
    for (; rows_size - *at >= HEAD_BYTES; count++) {
        const uint8_t *const row = rows + *at;
        const int64_t start = cafcat_int64_at(row + 6), end = cafcat_int64_at(row + 18), checksum = cafcat_int64_at(row + 30);
        const int64_t path_bytes = cafcat_int32_at(row + 62), left = rows_size - *at - HEAD_BYTES - TAIL_BYTES;
        if (path_bytes < 0 || path_bytes > left || start != *position || end < start || end > block_end
            || memcmp(row + HEAD_BYTES + path_bytes, no_decoding, TAIL_BYTES) != 0)
            break;
        if (cafcat_crc32c(block + (start - block_start), (size_t)(end - start), 0) != checksum)
            break;
        *at += HEAD_BYTES + path_bytes + TAIL_BYTES;
        *position = end;
    }
    return count;
}
