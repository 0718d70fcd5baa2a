/* One row by its key: what a Bind asks, on its way to a statement of SQLite. */

#ifndef CAIRN_POINT_H
#define CAIRN_POINT_H

#include <stddef.h>
#include <stdint.h>

#include "sqlite_abi.h"

#define PARTS_MOST 32 /* parameters, bindings, parts of a key */
#define NULL_LENGTH 0xffffffffu
#define BUCKET 0 /* in `bindings`, in the place of a parameter's number */

/* Parameters. The size counts for whole numbers alone. */
enum { TEXT_WHOLE = 0, BINARY_WHOLE = 1, TEXTS = 2, BINARY_REAL = 3, BINARY_TRUTH = 4, BINARY_TIME = 5 };

typedef struct {
    int32_t kind, size;
} Parameter;

typedef struct {
    const uint8_t *text; /* NULL: a number, or nothing at all */
    int64_t number;      /* of a real: its bits */
    uint32_t length;     /* NULL_LENGTH: NULL */
    uint32_t is_real;
} Given;

typedef struct {
    const Parameter *parameters;
    const int32_t *bindings, *key; /* numbers of parameters */
    const uint8_t *formats;        /* the end of a Bind */
    int32_t formats_length, parameter_count, binding_count, key_count, bucket_count;
    sqlite3_stmt *statement;
    Given given[PARTS_MOST];
    int64_t bucket;
    int32_t is_described;
} Point;

/* The functions of SQLite, once a connection has loaded this library for its points. */
extern const sqlite3_api *point_sqlite;

/* Reads the parameters: the bucket of their row, or 1 when rows are everywhere; 0: something else is
   asked, or not plainly. `data` begins with a Bind whose parameters begin at `at`. */
int64_t point_bind(Point *point, const uint8_t *data, size_t length, size_t at);

/* Gives SQLite what was read; 0: it does not take it. The bytes of the request are not copied. */
int point_give(const Point *point);

/* Prepares a text for good; 0: SQLite does not know it. */
int point_compile(sqlite3 *db, const char *sql, int32_t length, sqlite3_stmt **statement);

#endif
