/* Parses the entries of a CAF index in the usual notation, which cafcat and the two original programs write:
 *
 *   "path":{"start_byte":0,"end_byte":5,"crc32c":7,"modified_ns":9},
 *
 * "crc32c" and "modified_ns" may be missing. Anything else ends the parsing, also an invalid number or name: the parser
 * in Python continues there, and raises the error.
 */
#include "native.h"

#include <string.h>

#define MAX_NAME_BYTES (1 << 20)

/* Entries that were parsed. The columns are arrays of the caller. */
struct columns {
    int64_t *starts;
    int64_t *ends;
    int64_t *checksums; /* -1 for a missing one */
    int64_t *times;     /* INT64_MIN for a missing one */
    uint8_t *names;     /* with a newline after each name */
    int64_t names_bytes;
    int64_t end;        /* end of the last entry in the text */
    int32_t has_all_checksums;
    int32_t has_all_times;
    int32_t ascends;    /* each name is larger than the one before it */
};

static const uint8_t *after(const uint8_t *at, const uint8_t *end, const char *text, size_t size)
{
    return (size_t)(end - at) >= size && memcmp(at, text, size) == 0 ? at + size : NULL;
}
#define AFTER(at, text) after((at), end, (text), sizeof(text) - 1)

/* Reads a decimal number of at most 19 digits without leading zeros, which always fits into 64 bits. */
static const uint8_t *number_at(const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    const uint8_t *begin = at;
    uint64_t value = 0;
    for (; at < end && at - begin < 20 && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    const int64_t digits = at - begin;
    if (digits == 0 || digits > 19 || (*begin == '0' && digits > 1))
        return NULL;
    *number = value;
    return at;
}

#define EACH(byte) (0x0101010101010101u * (byte))

/* Returns 0 only if all eight bytes are plain: printable ASCII without quotation mark and backslash. */
static uint64_t is_special(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    const uint64_t quotes = word ^ EACH('"'), escapes = word ^ EACH('\\');
    return (word | (word - EACH(0x20)) | (quotes - EACH(1)) | (escapes - EACH(1))) & EACH(0x80);
}

/* Returns the quotation mark after a name; NULL if it is cut, too long, not UTF-8, or has escapes. */
static const uint8_t *name_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *begin = at;
    while (at < end && *at != '"') {
        if (end - at >= 8 && !is_special(at)) {
            at += 8;
            continue;
        }
        if (*at < 0x20 || *at == '\\')
            return NULL;
        const size_t size = cafcat_utf8_size(at, end);
        if (size == 0)
            return NULL;
        at += size;
    }
    return at < end && at - begin <= MAX_NAME_BYTES ? at : NULL;
}

/* Parses a checksum, if there is one. Returns NULL if it has more than 32 bits or an unusual notation. */
static const uint8_t *checksum_at(const uint8_t *at, const uint8_t *end, int64_t *checksum)
{
    uint64_t number;
    const uint8_t *digits = AFTER(at, ",\"crc32c\":");
    *checksum = -1;
    if (digits == NULL)
        return at;
    at = number_at(digits, end, &number);
    if (at == NULL || number > UINT32_MAX)
        return NULL;
    *checksum = (int64_t)number;
    return at;
}

/* Parses a time, if there is one. The smallest 64-bit number, which stands for a missing time, is refused. */
static const uint8_t *time_at(const uint8_t *at, const uint8_t *end, int64_t *time)
{
    uint64_t number;
    const uint8_t *digits = AFTER(at, ",\"modified_ns\":");
    *time = INT64_MIN;
    if (digits == NULL)
        return at;
    const int is_negative = digits < end && *digits == '-';
    at = number_at(digits + is_negative, end, &number);
    if (at == NULL || number > INT64_MAX || (is_negative && number == 0))
        return NULL;
    *time = is_negative ? -(int64_t)number : (int64_t)number;
    return at;
}

/* Compares two names as Python compares bytes. */
static int is_less(const uint8_t *one, int64_t one_bytes, const uint8_t *other, int64_t other_bytes)
{
    const int order = memcmp(one, other, (size_t)(one_bytes < other_bytes ? one_bytes : other_bytes));
    return order < 0 || (order == 0 && one_bytes < other_bytes);
}

/* Parses entries from text[begin] on, `most` at most, and returns their number.
 *
 * `names` has room for size - begin bytes, and each column for `most` numbers. No entry may end after `data_bytes`. */
EXPORTED int64_t cafcat_index_entries(const uint8_t *text, int64_t begin, int64_t size, int64_t data_bytes,
                                      int64_t most, struct columns *found)
{
    const uint8_t *const end = text + size;
    const uint8_t *at = text + begin;
    const uint8_t *last = NULL;
    uint8_t *names = found->names;
    int64_t last_bytes = 0, count = 0;
    found->has_all_checksums = found->has_all_times = found->ascends = 1;
    found->end = begin;
    for (; count < most; count++) {
        uint64_t start_byte, end_byte;
        if (at >= end || *at != '"')
            break;
        const uint8_t *const name = at + 1;
        const uint8_t *const quote = name_end(name, end);
        if (quote == NULL || (at = AFTER(quote, "\":{\"start_byte\":")) == NULL
            || (at = number_at(at, end, &start_byte)) == NULL || (at = AFTER(at, ",\"end_byte\":")) == NULL
            || (at = number_at(at, end, &end_byte)) == NULL
            || (at = checksum_at(at, end, &found->checksums[count])) == NULL
            || (at = time_at(at, end, &found->times[count])) == NULL || (at = AFTER(at, "},")) == NULL)
            break;
        if (start_byte > end_byte || end_byte > (uint64_t)data_bytes)
            break;
        found->starts[count] = (int64_t)start_byte;
        found->ends[count] = (int64_t)end_byte;
        found->has_all_checksums &= found->checksums[count] >= 0;
        found->has_all_times &= found->times[count] != INT64_MIN;
        const int64_t name_bytes = quote - name;
        if (last != NULL && !is_less(last, last_bytes, name, name_bytes))
            found->ascends = 0;
        memcpy(names, name, (size_t)name_bytes);
        names[name_bytes] = '\n';
        names += name_bytes + 1;
        last = name;
        last_bytes = name_bytes;
        found->end = at - text;
    }
    found->names_bytes = names - found->names;
    return count;
}

/* Returns 1 if a row has the numbers of an entry, and the file needs no decoding. */
static int is_equal(const struct columns *found, int64_t n, const uint8_t *row, int64_t path_bytes)
{
    return cafcat_row_start(row) == found->starts[n] && cafcat_row_end(row) == found->ends[n]
        && cafcat_row_checksum(row) == found->checksums[n] && found->times[n] != INT64_MIN
        && cafcat_row_time(row) == cafcat_time_of_row(found->times[n]) && cafcat_row_is_not_decoded(row, path_bytes);
}

/* Passes over entries from n on whose rows, from rows[*at] on, have the same path and numbers. Returns the position of the
 * first other entry, or of one whose row is not complete, and moves both positions. *name is that of entry n in the names. */
EXPORTED int64_t cafcat_match_rows(const struct columns *found, int64_t count, int64_t n, int64_t *name,
                                   const uint8_t *rows, int64_t rows_size, int64_t *at)
{
    for (; n < count; n++) {
        const uint8_t *const row = rows + *at, *const path = found->names + *name;
        const int64_t path_bytes = cafcat_row_path_bytes(row, rows_size - *at);
        if (path_bytes < 0 || path_bytes >= found->names_bytes - *name || path[path_bytes] != '\n'
            || memcmp(path, row + ROW_HEAD_BYTES, (size_t)path_bytes) != 0
            || memchr(path, '\n', (size_t)path_bytes) != NULL /* a row for several names */
            || !is_equal(found, n, row, path_bytes))
            break;
        *name += path_bytes + 1;
        *at += ROW_HEAD_BYTES + path_bytes + ROW_TAIL_BYTES;
    }
    return n;
}
