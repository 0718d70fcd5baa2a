/* One row by its key: what it is told. `point_bind.c` reads what is asked, in the same turn of the
   event loop; `point_answer` reads the row and writes the whole answer. */

#include "batch.h"
#include "packing.h"
#include "point.h"
#include "reals.h"

#define ANSWER_MOST (256 * 1024) /* bytes; a longer one is told in pieces */

enum { WHOLE = 0, REAL = 1, OUT_TEXTS = 2, TRUTH = 3 }; /* columns, as in `rows_out.c` */

typedef struct {
    int32_t kind, binary; /* 0: as text; else of a whole number how many bytes it has */
} Told;

typedef struct {
    Point point;
    const Told *columns;
    const uint8_t *bound, *described; /* what is told before the rows */
    int32_t bound_length, described_length, column_count;
} PointRead;

EXPORT int point_prepare(PointRead *plan, sqlite3 *db, const char *sql, int32_t length)
{
    return point_compile(db, sql, length, &plan->point.statement) ? TAKEN : ODD;
}

EXPORT void point_free(PointRead *plan)
{
    if (plan->point.statement)
        point_sqlite->finalize(plan->point.statement);
    plan->point.statement = NULL;
}

/* One value as a field of a DataRow at the end of `out`. */
static int put_value(Batch *out, const PointRead *plan, int32_t column)
{
    static const int TYPES[] = {SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_TEXT, SQLITE_INTEGER};
    const Told *told = &plan->columns[column];
    sqlite3_stmt *from = plan->point.statement;
    int type = point_sqlite->column_type(from, column);
    size_t length = 0;
    const uint8_t *text = NULL;
    if (type != SQLITE_NULL && type != TYPES[told->kind])
        return 0;
    if (type == SQLITE_TEXT) {
        text = point_sqlite->column_text(from, column);
        length = (size_t)point_sqlite->column_bytes(from, column);
        if (!text)
            return 0;
    }
    if (length > ANSWER_MOST || !batch_reserve(out, length + REAL_MOST + 16))
        return 0;
    uint8_t *field = out->data + out->size, *to = field + 4;
    if (type == SQLITE_NULL) {
        put_big(field, NULL_LENGTH, 4);
        out->size += 4;
        return 1;
    }
    if (text) {
        memcpy(to, text, length);
        to += length;
    } else if (told->kind == REAL) {
        double number = point_sqlite->column_double(from, column);
        uint64_t bits;
        memcpy(&bits, &number, 8);
        to = told->binary ? put_big(to, bits, 8) : put_real(to, number);
    } else {
        int64_t number = point_sqlite->column_int64(from, column);
        if (told->kind == TRUTH)
            *to++ = told->binary ? number != 0 : number ? 't' : 'f';
        else if (told->binary)
            to = put_whole_binary(to, number, told->binary);
        else {
            if (number < 0)
                *to++ = '-';
            to = put_digits(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 1);
        }
    }
    if (!to)
        return 0; /* a real that needs an exponent, a number that is too long for its column */
    put_big(field, (uint64_t)(to - field - 4), 4);
    out->size += (size_t)(to - field);
    return 1;
}

static int put_row(Batch *out, const PointRead *plan)
{
    size_t begun = out->size;
    if (!batch_reserve(out, 16))
        return 0;
    out->size += 7;
    for (int32_t column = 0; column < plan->column_count; column++)
        if (!put_value(out, plan, column))
            return 0;
    out->data[begun] = 'D';
    put_big(out->data + begun + 1, out->size - begun - 1, 4);
    put_big(out->data + begun + 5, (uint64_t)plan->column_count, 2);
    return out->size <= ANSWER_MOST;
}

static int put_all(Batch *out, const PointRead *plan)
{
    int32_t length = plan->point.is_described ? plan->described_length : plan->bound_length;
    int state, rows = 0;
    if (!batch_reserve(out, (size_t)length + 16))
        return -1;
    memcpy(out->data, plan->point.is_described ? plan->described : plan->bound, (size_t)length);
    out->size = (size_t)length;
    while ((state = point_sqlite->step(plan->point.statement)) == SQLITE_ROW) {
        if (!put_row(out, plan))
            return -1;
        rows++;
    }
    if (state != SQLITE_DONE || !batch_reserve(out, 64))
        return -1;
    uint8_t *end = out->data + out->size, *to = end + 5;
    memcpy(to, "SELECT ", 7);
    to = put_digits(to + 7, (uint64_t)rows, 1);
    *to++ = 0;
    *end = 'C';
    put_big(end + 1, (uint64_t)(to - end - 1), 4);
    memcpy(to, "Z\0\0\0\5I", 6);
    out->size += (size_t)(to - end) + 6;
    return rows;
}

/* The whole answer to what was bound last, into `out`: how many rows it has; -1: not from here. */
EXPORT int point_answer(PointRead *plan, Batch *out)
{
    out->size = out->rows = 0;
    int rows = point_give(&plan->point) ? put_all(out, plan) : -1;
    point_sqlite->reset(plan->point.statement);
    return rows;
}
