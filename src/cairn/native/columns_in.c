/* Columns of Arrow to packed rows: what Spark and COPY … (FORMAT arrow) send. */

#include "batch.h"
#include "packing.h"

enum { WHOLE = 0, REAL = 1, TEXTS = 2, BLOBS = 3, NOTHING = 4 };

typedef struct {
    int32_t kind;
    const uint8_t *valid; /* one bit for each value; NULL: all are there */
    const uint8_t *values; /* numbers, or the bytes of texts */
    const uint8_t *places; /* where texts begin and end among them, as int32_t */
    int64_t offset;       /* of the first value, in all three */
} ArrowColumn;

static int is_there(const ArrowColumn *column, int64_t at)
{
    return !column->valid || column->valid[at >> 3] >> (at & 7) & 1;
}

/* Buffers lie where the client's stream has them: at any address, not only at one for numbers. */
static int32_t place(const ArrowColumn *column, int64_t at)
{
    int32_t found;
    memcpy(&found, column->places + at * (int64_t)sizeof found, sizeof found);
    return found;
}

static size_t packed_most(const ArrowColumn *columns, int32_t width, int64_t row)
{
    size_t most = (size_t)(width + 2) * PACKED_MOST;
    for (int32_t number = 0; number < width; number++) {
        const ArrowColumn *column = &columns[number];
        if (column->kind == TEXTS || column->kind == BLOBS) {
            int64_t at = column->offset + row;
            most += (size_t)(place(column, at + 1) - place(column, at));
        }
    }
    return most;
}

static uint8_t *pack_value(uint8_t *to, const ArrowColumn *column, int64_t at)
{
    if (column->kind == NOTHING || !is_there(column, at))
        return *to = 0xc0, to + 1;
    if (column->kind == WHOLE) {
        int64_t whole;
        memcpy(&whole, column->values + at * (int64_t)sizeof whole, sizeof whole);
        return pack_integer(to, whole);
    }
    if (column->kind == REAL) {
        double real;
        memcpy(&real, column->values + at * (int64_t)sizeof real, sizeof real);
        return pack_double(to, real);
    }
    int32_t begin = place(column, at), end = place(column, at + 1);
    if (begin == end)
        return pack_bytes(to, (const uint8_t *)"", 0, column->kind == TEXTS); /* there may be no buffer */
    return pack_bytes(to, column->values + begin, (uint32_t)(end - begin), column->kind == TEXTS);
}

/* Rows `first` to `last` of columns that Arrow itself has checked; `buckets` has one for each row. */
EXPORT int columns_take(Batch *batch, const ArrowColumn *columns, int32_t width,
                        const int32_t *buckets, int64_t first, int64_t last)
{
    for (int64_t row = first; row < last; row++) {
        size_t most = packed_most(columns, width, row);
        if (most > UINT32_MAX)
            return ODD;
        if (!batch_reserve(batch, most))
            return NO_MEMORY;
        uint8_t *begun = batch->data + batch->size;
        uint8_t *to = pack_integer(pack_head(begun, (uint32_t)width + 1), buckets[row]);
        for (int32_t number = 0; number < width; number++)
            to = pack_value(to, &columns[number], columns[number].offset + row);
        batch_add(batch, (uint32_t)buckets[row], (uint32_t)(to - begun));
    }
    return TAKEN;
}
