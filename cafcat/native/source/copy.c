/* Takes rows of a running COPY from libpq, which has received them. */
#include "native.h"

/* PQgetCopyData and PQfreemem of libpq. Python passes their addresses, so that this library needs no header of libpq. */
typedef int (*get_copy_data)(void *connection, char **row, int async);
typedef void (*free_memory)(void *memory);

/* Copies rows into a block until libpq has no further whole row, or a row does not fit. Sets *size to the bytes of these rows.
 *
 * Returns the last result of PQgetCopyData: 0 if the server has to send more, -1 after the last row, -2 after an error. A
 * result above 0 is the size of a row that does not fit: *row is this row, and the caller frees it. */
EXPORTED int64_t cafcat_copy_rows(get_copy_data get, free_memory release, void *connection, uint8_t *block, int64_t capacity,
                                  int64_t *size, char **row)
{
    int row_bytes;
    *size = 0;
    while ((row_bytes = get(connection, row, 1)) > 0) {
        if (row_bytes > capacity - *size)
            return row_bytes;
        __builtin_memcpy(block + *size, *row, (size_t)row_bytes);
        *size += row_bytes;
        release(*row);
    }
    return row_bytes;
}
