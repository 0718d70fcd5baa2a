/* What functions and sums of DECIMAL share. */

#ifndef CAIRN_DECIMAL_FUNCTIONS_H
#define CAIRN_DECIMAL_FUNCTIONS_H

#include "decimals.h"
#include "sqlite_abi.h"

extern const sqlite3_api *decimal_sqlite;

/* Whether one of them is NULL; the answer is NULL then. */
int any_null(sqlite3_context *context, int count, sqlite3_value **values);

int read_decimal(sqlite3_value *value, Number *found);

/* The answer of the function of Python that is called p_<name>; at most three arguments. */
void ask_python(sqlite3_context *context, const char *name, int count, sqlite3_value **values);

int decimal_functions(sqlite3 *db, const sqlite3_api *api);
int decimal_sums(sqlite3 *db);

#endif
