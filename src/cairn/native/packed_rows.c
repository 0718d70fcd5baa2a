/* A table function of SQLite: `packed_rows(rows, width)` gives the rows of a batch, column by column.

   `INSERT INTO t SELECT c0, c1, … FROM packed_rows(?, n)` puts a whole chunk into a table in one step,
   without making an object of Python for any value. The bytes may have come from another instance
   or from a disk: nothing in them is believed before its end was looked at. */

#include "batch.h"
#include "sqlite_abi.h"
#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 256 /* columns at most; `native/library.py` knows it too */
enum { DATA = WIDTH, WANTED = WIDTH + 1 }; /* hidden columns: the arguments */

static const sqlite3_api *sqlite;

typedef struct {
    sqlite3_vtab_cursor base;
    uint8_t *data; /* a copy: the argument lives no longer than `filter` */
    size_t size;
    const uint8_t *next, *end; /* behind this row; behind all */
    int64_t row;
    int is_over;
    int64_t wanted; /* values of each row */
    const uint8_t *values[WIDTH];
} Cursor;

static uint64_t big(const uint8_t *at, int bytes)
{
    uint64_t found = 0;
    while (bytes--)
        found = found << 8 | *at++;
    return found;
}

/* Bytes of the head of a value, and in `*body` those that follow it; 0: no value of ours. */
static int measure(const uint8_t *at, const uint8_t *end, uint64_t *body)
{
    uint8_t kind = *at;
    int counted = 0;
    *body = 0;
    if (kind < 0x80 || kind >= 0xe0 || kind == 0xc0 || kind == 0xc2 || kind == 0xc3)
        return 1;
    if (kind >= 0xa0 && kind <= 0xbf)
        return *body = kind & 31, 1;
    switch (kind) {
    case 0xcc: case 0xd0: *body = 1; return 1;
    case 0xcd: case 0xd1: *body = 2; return 1;
    case 0xce: case 0xd2: *body = 4; return 1;
    case 0xd3: case 0xcb: *body = 8; return 1;
    case 0xcf: *body = 8; return end - at > 1 && at[1] < 0x80; /* no more than SQLite can hold */
    case 0xc4: case 0xd9: counted = 1; break;
    case 0xc5: case 0xda: counted = 2; break;
    case 0xc6: case 0xdb: counted = 4; break;
    default: return 0;
    }
    if (end - at <= counted)
        return 0;
    *body = big(at + 1, counted);
    return 1 + counted;
}

static int is_text(uint8_t kind)
{
    return (kind >= 0xa0 && kind <= 0xbf) || (kind >= 0xd9 && kind <= 0xdb);
}

/* Find the values of the row that begins at `next`; 0: it is damaged. */
static int look(Cursor *cursor)
{
    const uint8_t *at = cursor->next, *end = cursor->end;
    uint64_t width = *at & 15, body;
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
        int head = at < end ? measure(at, end, &body) : 0;
        if (!head || (uint64_t)(end - at) < (uint64_t)head + body)
            return 0;
        if (is_text(*at) && !is_utf8(at + head, body))
            return 0;
        cursor->values[column] = at;
        at += (uint64_t)head + body;
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
    const uint8_t *at = cursor->values[number];
    uint64_t body, bits;
    int head = measure(at, cursor->end, &body);
    double real;
    switch (*at) {
    case 0xc0:
        sqlite->result_null(context);
        break;
    case 0xc2: case 0xc3:
        sqlite->result_int64(context, *at == 0xc3);
        break;
    case 0xcb:
        bits = big(at + 1, 8);
        memcpy(&real, &bits, 8);
        sqlite->result_double(context, real);
        break;
    case 0xc4: case 0xc5: case 0xc6: /* values lie still until the cursor is closed */
        sqlite->result_blob(context, at + head, (int)body, NULL);
        break;
    case 0xcc: case 0xcd: case 0xce: case 0xcf:
        sqlite->result_int64(context, (int64_t)big(at + 1, (int)body));
        break;
    case 0xd0:
        sqlite->result_int64(context, (int8_t)at[1]);
        break;
    case 0xd1:
        sqlite->result_int64(context, (int16_t)big(at + 1, 2));
        break;
    case 0xd2:
        sqlite->result_int64(context, (int32_t)big(at + 1, 4));
        break;
    case 0xd3:
        sqlite->result_int64(context, (int64_t)big(at + 1, 8));
        break;
    default:
        if (*at < 0x80 || *at >= 0xe0)
            sqlite->result_int64(context, (int8_t)*at);
        else
            sqlite->result_text(context, (const char *)at + head, (int)body, NULL);
    }
    return SQLITE_OK;
}

static int connect(sqlite3 *db, void *given, int count, const char *const *words,
                   sqlite3_vtab **table, char **message)
{
    char sql[64 + WIDTH * 6], *to = sql + sprintf(sql, "CREATE TABLE x(");
    (void)given, (void)count, (void)words, (void)message;
    for (int number = 0; number < WIDTH; number++)
        to += sprintf(to, "c%d,", number);
    strcpy(to, "data HIDDEN,width HIDDEN)");
    int state = sqlite->declare_vtab(db, sql);
    if (state == SQLITE_OK && !(*table = calloc(1, sizeof **table)))
        state = SQLITE_NOMEM;
    return state;
}

static int disconnect(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table;
    info->cost = 1e6;
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
    return api->create_module(db, "packed_rows", &MODULE, NULL);
}
