/* A table function of SQLite: `packed_pieces(sql, given, most)` runs a SELECT and gives its rows packed,
   about `most` bytes of them at a time: no object of Python is made for any value, and its lock is free.

   `packed_rows.c` is the way back. The statement is compiled as any other of this connection is, so
   whoever may only read may only read by this too; it ends with the cursor. What it says when it fails
   is said again. */

#include "packed_out.h"
#include "point.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 0, ROWS = 1, SQL = 2, GIVEN = 3, MOST = 4 }; /* columns; the last three are hidden */
#define COLUMNS_MOST 256 /* as many as `packed_rows.c` reads */

typedef struct {
    sqlite3_vtab_cursor base;
    sqlite3_stmt *from;
    uint8_t *given; /* a copy: the argument lives no longer than `filter` */
    Batch out;
    uint64_t most;
    int64_t piece;
    int columns, is_over;
} Cursor;

typedef struct {
    sqlite3_vtab base;
    sqlite3 *db;
} Table;

static int failed(Cursor *cursor, int state, const char *words)
{
    sqlite3_vtab *table = cursor->base.table;
    if (!words)
        words = point_sqlite->errmsg(((Table *)table)->db);
    table->message = point_sqlite->mprintf("%s", words);
    return state;
}

static int step(sqlite3_vtab_cursor *base)
{
    Cursor *cursor = (Cursor *)base;
    uint64_t counted = 0;
    int state = SQLITE_DONE;
    cursor->out.size = cursor->out.rows = 0;
    cursor->piece++;
    while (cursor->from && cursor->out.size < cursor->most) {
        state = point_sqlite->step(cursor->from);
        if (state != SQLITE_ROW)
            break;
        if (!packed_put_row(&cursor->out, cursor->from, cursor->columns, &counted))
            return SQLITE_NOMEM;
    }
    if (cursor->from && state != SQLITE_ROW) {
        int is_told = state == SQLITE_DONE ? SQLITE_OK : failed(cursor, state, NULL);
        point_sqlite->finalize(cursor->from);
        cursor->from = NULL;
        if (is_told != SQLITE_OK)
            return is_told;
    }
    cursor->is_over = !cursor->out.rows;
    return SQLITE_OK;
}

static void ended(Cursor *cursor)
{
    if (cursor->from)
        point_sqlite->finalize(cursor->from);
    cursor->from = NULL;
    free(cursor->given);
    cursor->given = NULL;
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *text, int count,
                  sqlite3_value **values)
{
    Cursor *cursor = (Cursor *)base;
    (void)number, (void)text;
    ended(cursor);
    cursor->piece = cursor->is_over = 0;
    if (count != 3)
        return failed(cursor, SQLITE_ERROR, "packed_pieces(sql, given, most) has three arguments");
    const char *sql = (const char *)point_sqlite->value_text(values[0]);
    int length = point_sqlite->value_bytes(values[0]);
    const void *given = point_sqlite->value_blob(values[1]);
    int size = point_sqlite->value_bytes(values[1]);
    int64_t most = point_sqlite->value_int64(values[2]);
    cursor->most = most < 1 ? 1 : (uint64_t)most;
    if (!sql || !(cursor->given = malloc((size_t)size + 1)))
        return SQLITE_NOMEM;
    if (size)
        memcpy(cursor->given, given, (size_t)size);
    int state = point_sqlite->prepare(((Table *)base->table)->db, sql, length, 0, &cursor->from, NULL);
    if (state != SQLITE_OK)
        return failed(cursor, state, NULL);
    cursor->columns = point_sqlite->column_count(cursor->from);
    if (cursor->columns < 1 || cursor->columns > COLUMNS_MOST)
        return failed(cursor, SQLITE_ERROR, "packed_pieces has up to 256 columns");
    if (!packed_bind(cursor->from, cursor->given, cursor->given + size))
        return failed(cursor, SQLITE_ERROR, "packed values do not fit the statement");
    return step(base);
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *context, int number)
{
    Cursor *cursor = (Cursor *)base;
    if (number == PIECE) /* whoever takes it copies it before the next step */
        point_sqlite->result_blob(context, cursor->out.data, (int)cursor->out.size, (Destroy)-1);
    else if (number == ROWS)
        point_sqlite->result_int64(context, (int64_t)cursor->out.rows);
    else
        point_sqlite->result_null(context);
    return SQLITE_OK;
}

static int connect(sqlite3 *db, void *given, int count, const char *const *words,
                   sqlite3_vtab **table, char **message)
{
    (void)given, (void)count, (void)words, (void)message;
    int state = point_sqlite->declare_vtab(
        db, "CREATE TABLE x(piece, rows, sql HIDDEN, given HIDDEN, most HIDDEN)");
    if (state != SQLITE_OK)
        return state;
    Table *made = calloc(1, sizeof *made);
    if (!made)
        return SQLITE_NOMEM;
    made->db = db;
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
    (void)table;
    info->cost = 1e6;
    for (int at = 0; at < info->count; at++) {
        int number = info->constraints[at].column;
        if (number < SQL || info->constraints[at].op != SQLITE_INDEX_CONSTRAINT_EQ)
            continue;
        if (!info->constraints[at].is_usable)
            return SQLITE_CONSTRAINT;
        info->usage[at].argument = number - SQL + 1;
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
    Cursor *cursor = (Cursor *)base;
    ended(cursor);
    free(cursor->out.data);
    free(cursor->out.buckets);
    free(cursor->out.lengths);
    free(cursor);
    return SQLITE_OK;
}

static int is_over(sqlite3_vtab_cursor *base)
{
    return ((Cursor *)base)->is_over;
}

static int row_number(sqlite3_vtab_cursor *base, int64_t *number)
{
    *number = ((Cursor *)base)->piece;
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

int packed_pieces_offered(sqlite3 *db, const sqlite3_api *api)
{
    point_sqlite = api;
    return api->create_module(db, "packed_pieces", &MODULE, NULL);
}
