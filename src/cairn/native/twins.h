/* What functions share that have a twin in Python under the name `p_…`. */

#ifndef CAIRN_TWINS_H
#define CAIRN_TWINS_H

#include "decimals.h"
#include "sqlite_abi.h"

extern const sqlite3_api *decimal_sqlite;

/* Whether one of them is NULL; the answer is NULL then. */
int any_null(sqlite3_context *context, int count, sqlite3_value **values);

int read_decimal(sqlite3_value *value, Number *found);

void tell_decimal(sqlite3_context *context, const Number *number, int is_shown);

/* The answer of the function of Python that is called p_<name>; at most four arguments. */
void ask_python(sqlite3_context *context, const char *name, int count, sqlite3_value **values);

typedef struct {
    const char *name; /* NULL: this was the last one */
    int count;
    Function function;
} Known;

extern const Known TIMES[], LIKES[], JSONS[], TEXTS_IN_C[];

/* What SQLite said last is the error of this function: a statement that was stopped stays stopped. */
void fail_likewise(sqlite3_context *context);

int twin_functions(sqlite3 *db, const sqlite3_api *api);
int decimal_sums(sqlite3 *db);
int packed_groups(sqlite3 *db);

/* A sum of DECIMAL of its own, for `groups.c`. */
typedef struct Sum Sum;
Sum *sum_new(void);
int sum_add(Sum *sum, sqlite3_value *value);
size_t sum_put(const Sum *sum, int is_shown, uint8_t *bytes);
void sum_free(Sum *sum);

#endif
