/* Receives rows of a running COPY through libpq. */
#include "native.h"

#include <poll.h>

/* How long a call waits for further bytes of the server, in milliseconds. Python waits longer, and handles signals. */
#define WAIT_MILLISECONDS 2

/* `struct copying` of cafcat/native/copy.py. */
struct copying {
    /* PQgetCopyData, PQfreemem and PQconsumeInput. Python passes their addresses, so that this library needs no libpq. */
    int (*get)(void *connection, char **row, int async);
    void (*release)(void *memory);
    int (*consume)(void *connection);
    void *connection;
    int32_t socket;            /* of the connection */
    uint8_t *block;            /* memory of the caller */
    int64_t capacity;
    int64_t size;              /* result: number of bytes in the block */
    char *row;                 /* result: a row that does not fit, if the return value is above 0. The caller frees it */
};

/* Copies the rows that libpq has received. */
static int copy_received(struct copying *from)
{
    int row_bytes;
    while ((row_bytes = from->get(from->connection, &from->row, 1)) > 0) {
        if (row_bytes > from->capacity - from->size)
            return row_bytes;
        __builtin_memcpy(from->block + from->size, from->row, (size_t)row_bytes);
        from->size += row_bytes;
        from->release(from->row);
    }
    return row_bytes;
}

/* Waits for further bytes of the server. Returns 1 if libpq has received some. */
static int receive(struct copying *from)
{
    struct pollfd ready = {.fd = from->socket, .events = POLLIN};
    return poll(&ready, 1, WAIT_MILLISECONDS) == 1 && from->consume(from->connection);
}

/* Copies rows into the block until one does not fit, or the server sends nothing for WAIT_MILLISECONDS.
 *
 * Returns the last result of PQgetCopyData: 0 if the server has to send more, -1 after the last row, -2 after an error. A
 * result above 0 is the size of the row that does not fit. */
EXPORTED int64_t cafcat_copy_rows(struct copying *from)
{
    int result;
    from->size = 0;
    do
        result = copy_received(from);
    while (result == 0 && receive(from));
    return result;
}
