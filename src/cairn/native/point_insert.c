/* One new row and its record in the row log, from the bytes of a Bind.

   Called inside the writer's transaction, whoever calls has checked what guards it, and the hook that
   tells changes to Python is off meanwhile: the record is made here, of the same values that SQLite
   is given. Both are in the transaction or neither is, but for LOST. */

#include "batch.h"
#include "packing.h"
#include "point.h"

#define NIL 0xc0
#define ENTRIES_BEHIND 4 /* of a body, behind its changes: none of them is there */

enum { REFUSED = -1, RECORD_LOST = -2, UNREADABLE = -3 };

typedef struct {
    int32_t number; /* of a parameter; 0: a constant */
    int32_t length;
    const uint8_t *packed; /* the constant */
} Cell;

typedef struct {
    Point point;
    const Cell *cells;
    const uint8_t *head; /* of the record, from its changes to the values of the row */
    int32_t cell_count, head_length;
    sqlite3_stmt *log;
    int32_t state; /* what SQLite said last */
} PointInsert;

EXPORT int insert_prepare(PointInsert *plan, sqlite3 *db, const char *sql, int32_t length,
                          const char *log, int32_t log_length)
{
    int is_known = point_compile(db, sql, length, &plan->point.statement) &&
                   point_compile(db, log, log_length, &plan->log);
    return is_known ? TAKEN : ODD;
}

EXPORT void insert_free(PointInsert *plan)
{
    if (plan->point.statement)
        point_sqlite->finalize(plan->point.statement);
    if (plan->log)
        point_sqlite->finalize(plan->log);
    plan->point.statement = plan->log = NULL;
}

static int put_cell(Batch *out, const PointInsert *plan, const Cell *cell)
{
    const Given *value = cell->number ? &plan->point.given[cell->number - 1] : NULL;
    size_t length = !value ? (size_t)cell->length : value->text ? value->length : 0;
    if (!batch_reserve(out, length + PACKED_MOST))
        return 0;
    uint8_t *to = out->data + out->size;
    if (!value) {
        memcpy(to, cell->packed, length);
        to += length;
    } else if (value->length == NULL_LENGTH)
        *to++ = NIL;
    else if (value->text)
        to = pack_bytes(to, value->text, value->length, 1);
    else if (value->is_real) {
        *to = 0xcb;
        to = put_big(to + 1, (uint64_t)value->number, 8);
    } else
        to = pack_integer(to, value->number);
    out->size = (size_t)(to - out->data);
    return 1;
}

/* The body of the record, as `model/log/records.py` has it. */
static int put_body(Batch *out, const PointInsert *plan, int64_t micros)
{
    out->size = out->rows = 0;
    if (!batch_reserve(out, (size_t)plan->head_length + 32))
        return 0;
    uint8_t *to = out->data;
    *to++ = 0x97; /* of seven: kind, time, changes, and four that are not there */
    *to++ = 0;
    to = pack_integer(to, micros);
    memcpy(to, plan->head, (size_t)plan->head_length);
    to = pack_integer(to + plan->head_length, plan->point.bucket);
    out->size = (size_t)(to - out->data);
    for (int32_t at = 0; at < plan->cell_count; at++)
        if (!put_cell(out, plan, &plan->cells[at]))
            return 0;
    if (!batch_reserve(out, ENTRIES_BEHIND))
        return 0;
    memset(out->data + out->size, NIL, ENTRIES_BEHIND);
    out->size += ENTRIES_BEHIND;
    return 1;
}

static int put_record(PointInsert *plan, const Batch *body, int64_t place, int64_t epoch)
{
    int state = point_sqlite->bind_int64(plan->log, 1, place);
    if (state == SQLITE_OK)
        state = point_sqlite->bind_int64(plan->log, 2, epoch);
    if (state == SQLITE_OK)
        state = point_sqlite->bind_blob(plan->log, 3, body->data, (int)body->size, NULL);
    if (state == SQLITE_OK)
        state = point_sqlite->step(plan->log);
    point_sqlite->reset(plan->log);
    return state;
}

/* How many rows are new: 1, or 0 when ON CONFLICT kept one that was there. Below that nothing was
   done, but for RECORD_LOST: the row is in the transaction, and its record is not. */
EXPORT int insert_row(PointInsert *plan, sqlite3 *db, const uint8_t *data, size_t length, size_t at,
                      int64_t place, int64_t epoch, int64_t micros, Batch *out)
{
    plan->state = SQLITE_OK;
    if (!point_bind(&plan->point, data, length, at) || !put_body(out, plan, micros))
        return UNREADABLE;
    if (!point_give(&plan->point))
        return UNREADABLE;
    int state = point_sqlite->step(plan->point.statement);
    point_sqlite->reset(plan->point.statement);
    plan->state = state;
    if (state != SQLITE_DONE)
        return REFUSED;
    if (!point_sqlite->changes(db))
        return 0;
    plan->state = put_record(plan, out, place, epoch);
    return plan->state == SQLITE_DONE ? 1 : RECORD_LOST;
}
