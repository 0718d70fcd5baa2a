/* Rows of a query, packed as records of the row log have them; `packed_rows.c` is the way back.

   Called without a lock of Python: the thread that reads keeps nobody waiting. Whatever goes wrong is
   left to Python, which reads the same again and says what it is. */

#include "packed_out.h"
#include "packing.h"
#include "point.h"
#include "unpacking.h"

static int bind(sqlite3_stmt *to, int number, const Unpacked *value)
{
    switch (value->kind) {
    case PACKED_NULL: return point_sqlite->bind_null(to, number);
    case PACKED_WHOLE: return point_sqlite->bind_int64(to, number, value->number);
    case PACKED_REAL: return point_sqlite->bind_double(to, number, value->real);
    case PACKED_BYTES: /* they outlive the reading, like texts */
        return point_sqlite->bind_blob(to, number, value->bytes, (int)value->length, NULL);
    default:
        return point_sqlite->bind_text(to, number, (const char *)value->bytes, (int)value->length, NULL);
    }
}

int packed_bind(sqlite3_stmt *to, const uint8_t *given, const uint8_t *end)
{
    for (int number = 1; given < end; number++) {
        const uint8_t *next = after_value(given, end);
        if (!next)
            return 0;
        Unpacked value = unpack(given, next);
        if (bind(to, number, &value) != SQLITE_OK)
            return 0;
        given = next;
    }
    return 1;
}

/* One value at the end of the row that begins at the end of `out` and has `*length` bytes so far. */
static int put_value(Batch *out, sqlite3_stmt *from, int column, size_t *length, uint64_t *counted)
{
    int type = point_sqlite->column_type(from, column);
    const uint8_t *bytes = NULL;
    size_t size = 0;
    if (type == SQLITE_TEXT)
        bytes = point_sqlite->column_text(from, column);
    else if (type == SQLITE_BLOB)
        bytes = point_sqlite->column_blob(from, column);
    if (type == SQLITE_TEXT || type == SQLITE_BLOB)
        size = (size_t)point_sqlite->column_bytes(from, column);
    if ((type == SQLITE_TEXT || size) && !bytes)
        return 0; /* no memory */
    if (!batch_reserve(out, *length + size + PACKED_MOST))
        return 0;
    uint8_t *begun = out->data + out->size + *length, *to = begun;
    if (type == SQLITE_NULL)
        *to++ = 0xc0;
    else if (type == SQLITE_INTEGER)
        to = pack_integer(to, point_sqlite->column_int64(from, column));
    else if (type == SQLITE_FLOAT)
        to = pack_double(to, point_sqlite->column_double(from, column));
    else
        to = pack_bytes(to, bytes ? bytes : to, (uint32_t)size, type == SQLITE_TEXT);
    *length += (size_t)(to - begun);
    *counted += type == SQLITE_TEXT || type == SQLITE_BLOB ? size : 8;
    return 1;
}

int packed_put_row(Batch *out, sqlite3_stmt *from, int columns, uint64_t *counted)
{
    uint8_t head[3];
    size_t length = (size_t)(pack_head(head, (uint32_t)columns) - head);
    if (!batch_reserve(out, length))
        return 0;
    memcpy(out->data + out->size, head, length);
    for (int column = 0; column < columns; column++)
        if (!put_value(out, from, column, &length, counted))
            return 0;
    if (length > UINT32_MAX)
        return 0;
    batch_add(out, 0, (uint32_t)length);
    return 1;
}

/* Rows of `sql` until there are `most_rows` of them, or more than `most_bytes`: at least one, if there is
   one. `*counted` are the bytes of their texts, and eight for any other value. */
EXPORT int packed_out(sqlite3 *db, const char *sql, int32_t length, int32_t columns,
                      const uint8_t *given, size_t given_length, size_t most_rows,
                      uint64_t most_bytes, Batch *out, uint64_t *counted)
{
    sqlite3_stmt *from = NULL;
    int state = ODD;
    out->size = out->rows = 0;
    *counted = 0;
    if (point_compile(db, sql, length, &from) && packed_bind(from, given, given + given_length))
        while (state == ODD) {
            int stepped = SQLITE_DONE;
            if (out->rows < most_rows && *counted <= most_bytes)
                stepped = point_sqlite->step(from);
            if (stepped == SQLITE_DONE)
                state = TAKEN;
            else if (stepped != SQLITE_ROW || !packed_put_row(out, from, columns, counted))
                break;
        }
    if (from)
        point_sqlite->finalize(from);
    return state;
}
