/* A table function of SQLite: `packed_rows(rows, width)` gives the rows of a batch, column by column.

   `INSERT INTO t SELECT c0, c1, … FROM packed_rows(?, n)` puts a whole chunk into a table in one step,
   without making an object of Python for any value. The bytes may have come from another instance
   or from a disk: nothing in them is believed before its end was looked at. */

#include "batch.h"
#include "packed_out.h"
#include "sqlite_abi.h"
#include "unpacking.h"
#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 256 /* columns at most; `native/library.py` knows it too */
enum { DATA = WIDTH, WANTED = WIDTH + 1 }; /* hidden columns: the arguments */

static const sqlite3_api *sqlite;

typedef struct {
    sqlite3_vtab base;
    int64_t rows; /* that SQLite plans for */
} Table;

/* SQLite makes an index of so many for a join, and does not begin with them where nothing finds the others. */
static const int64_t MANY = 10000;

typedef struct {
    sqlite3_vtab_cursor base;
    uint8_t *data; /* a copy: the argument lives no longer than `filter` */
    size_t size;
    const uint8_t *next, *end; /* behind this row; behind all */
    int64_t row;
    int is_over;
    int64_t wanted; /* values of each row */
    Unpacked values[WIDTH];
} Cursor;

/* Find the values of the row that begins at `next`; 0: it is damaged. */
static int look(Cursor *cursor)
{
    const uint8_t *at = cursor->next, *end = cursor->end;
    uint64_t width = *at & 15;
    if (*at == 0xdc && end - at >= 3) {
        width = big(at + 1, 2);
        at += 3;
    } else if ((*at & 0xf0) == 0x90)
        at++;
    else
        return 0;
    if ((int64_t)width != cursor->wanted)
        return 0;
    for (uint64_t column = 0; column < width; column++) {
        const uint8_t *next = after_value(at, end);
        if (!next)
            return 0;
        Unpacked value = unpack(at, next);
        if (value.kind == PACKED_TEXT && !is_utf8(value.bytes, value.length))
            return 0;
        cursor->values[column] = value;
        at = next;
    }
    cursor->next = at;
    return 1;
}

static int step(sqlite3_vtab_cursor *base)
{
    Cursor *cursor = (Cursor *)base;
    if (cursor->next == cursor->end) {
        cursor->is_over = 1;
        return SQLITE_OK;
    }
    cursor->row++;
    if (look(cursor))
        return SQLITE_OK;
    base->table->message = sqlite->mprintf("packed rows are damaged at row %d", (int)cursor->row);
    return SQLITE_ERROR;
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *text, int count,
                  sqlite3_value **values)
{
    Cursor *cursor = (Cursor *)base;
    (void)number, (void)text;
    free(cursor->data);
    cursor->data = NULL;
    cursor->row = cursor->is_over = 0;
    cursor->next = cursor->end = NULL;
    if (count != 2 || (cursor->wanted = sqlite->value_int64(values[1])) < 1 || cursor->wanted > WIDTH) {
        base->table->message = sqlite->mprintf("packed_rows(rows, width) has two arguments");
        return SQLITE_ERROR;
    }
    const void *given = sqlite->value_blob(values[0]);
    int size = sqlite->value_bytes(values[0]);
    if (given && size > 0) {
        cursor->data = malloc((size_t)size);
        if (!cursor->data)
            return SQLITE_NOMEM;
        memcpy(cursor->data, given, (size_t)size);
        cursor->next = cursor->data;
        cursor->end = cursor->data + size;
    }
    return step(base);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *context, int number)
{
    Cursor *cursor = (Cursor *)base;
    if (number >= cursor->wanted) {
        sqlite->result_null(context);
        return SQLITE_OK;
    }
    const Unpacked *value = &cursor->values[number];
    switch (value->kind) {
    case PACKED_NULL: sqlite->result_null(context); break;
    case PACKED_WHOLE: sqlite->result_int64(context, value->number); break;
    case PACKED_REAL: sqlite->result_double(context, value->real); break;
    case PACKED_BYTES: /* values lie still until the cursor is closed */
        sqlite->result_blob(context, value->bytes, (int)value->length, NULL);
        break;
    default: sqlite->result_text(context, (const char *)value->bytes, (int)value->length, NULL);
    }
    return SQLITE_OK;
}

static int connect(sqlite3 *db, void *given, int count, const char *const *words,
                   sqlite3_vtab **table, char **message)
{
    char sql[64 + WIDTH * 6], *to = sql + sprintf(sql, "CREATE TABLE x(");
    (void)count, (void)words, (void)message;
    for (int number = 0; number < WIDTH; number++)
        to += sprintf(to, "c%d,", number);
    strcpy(to, "data HIDDEN,width HIDDEN)");
    int state = sqlite->declare_vtab(db, sql);
    if (state != SQLITE_OK)
        return state;
    Table *made = calloc(1, sizeof *made);
    if (!made)
        return SQLITE_NOMEM;
    made->rows = *(const int64_t *)given;
    *table = &made->base;
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    info->rows = ((Table *)table)->rows;
    info->cost = 1e2 * (double)info->rows;
    for (int at = 0; at < info->count; at++) {
        int number = info->constraints[at].column;
        if (number < DATA || info->constraints[at].op != SQLITE_INDEX_CONSTRAINT_EQ)
            continue;
        if (!info->constraints[at].is_usable)
            return SQLITE_CONSTRAINT; /* another order of the tables, please */
        info->usage[at].argument = number == DATA ? 1 : 2;
        info->usage[at].omit = 1;
    }
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **found)
{
    Cursor *cursor = calloc(1, sizeof *cursor);
    (void)table;
    if (!cursor)
        return SQLITE_NOMEM;
    *found = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    free(((Cursor *)base)->data);
    free(base);
    return SQLITE_OK;
}

static int is_over(sqlite3_vtab_cursor *base)
{
    return ((Cursor *)base)->is_over;
}

static int row_number(sqlite3_vtab_cursor *base, int64_t *number)
{
    *number = ((Cursor *)base)->row;
    return SQLITE_OK;
}

static const sqlite3_module MODULE = {
    .connect = connect,
    .best_index = best_index,
    .disconnect = disconnect,
    .open = open_cursor,
    .close = close_cursor,
    .filter = filter,
    .next = step,
    .eof = is_over,
    .column = column,
    .rowid = row_number,
};

/* Called by SQLite when a connection loads this library. */
EXPORT int cairn_packed_rows(sqlite3 *db, char **message, const sqlite3_api *api)
{
    (void)message;
    sqlite = api;
    int state = packed_pieces_offered(db, api);
    return state == SQLITE_OK ? api->create_module(db, "packed_rows", &MODULE, (void *)&MANY) : state;
}
