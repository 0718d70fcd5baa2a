/* What an extension is given by SQLite, as far as it is used here.

   SQLite hands its functions over as one table of pointers. New ones are only ever added at its
   end, so places in it are fixed for good. Said here once, by number, so that no header of SQLite
   has to be installed; `tests/native/test_packed_rows.py` would not live long if one were wrong. */

#ifndef CAIRN_SQLITE_ABI_H
#define CAIRN_SQLITE_ABI_H

#include <stdint.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef struct sqlite3_context sqlite3_context;
typedef struct sqlite3_value sqlite3_value;
typedef struct sqlite3_module sqlite3_module;
typedef void (*Destroy)(void *);
typedef void (*Function)(sqlite3_context *, int, sqlite3_value **);
typedef void (*Final)(sqlite3_context *);

enum { SQLITE_OK = 0, SQLITE_ERROR = 1, SQLITE_NOMEM = 7, SQLITE_CONSTRAINT = 19 };
enum { SQLITE_ROW = 100, SQLITE_DONE = 101 };
enum { SQLITE_INTEGER = 1, SQLITE_FLOAT = 2, SQLITE_TEXT = 3, SQLITE_BLOB = 4, SQLITE_NULL = 5 };
enum { SQLITE_PREPARE_PERSISTENT = 1 };
enum { SQLITE_INDEX_CONSTRAINT_EQ = 2 };

typedef struct {
    const sqlite3_module *module;
    int references;
    char *message; /* from `mprintf`; SQLite frees it */
} sqlite3_vtab;

typedef struct {
    sqlite3_vtab *table;
} sqlite3_vtab_cursor;

typedef struct {
    int count;
    struct {
        int column;
        unsigned char op, is_usable;
        int offset;
    } *constraints;
    int order_count;
    void *order;
    struct {
        int argument; /* from 1 on; 0: not an argument of `filter` */
        unsigned char omit;
    } *usage;
    int number;
    char *text;
    int is_text_ours;
    int is_ordered;
    double cost;
    int64_t rows;
} sqlite3_index_info; /* later versions have more behind it */

struct sqlite3_module {
    int version;
    int (*create)(sqlite3 *, void *, int, const char *const *, sqlite3_vtab **, char **);
    int (*connect)(sqlite3 *, void *, int, const char *const *, sqlite3_vtab **, char **);
    int (*best_index)(sqlite3_vtab *, sqlite3_index_info *);
    int (*disconnect)(sqlite3_vtab *);
    int (*destroy)(sqlite3_vtab *);
    int (*open)(sqlite3_vtab *, sqlite3_vtab_cursor **);
    int (*close)(sqlite3_vtab_cursor *);
    int (*filter)(sqlite3_vtab_cursor *, int, const char *, int, sqlite3_value **);
    int (*next)(sqlite3_vtab_cursor *);
    int (*eof)(sqlite3_vtab_cursor *);
    int (*column)(sqlite3_vtab_cursor *, sqlite3_context *, int);
    int (*rowid)(sqlite3_vtab_cursor *, int64_t *);
    void *unused[16]; /* writing, names, savepoints: none of them is offered */
};

typedef void (*Any)(void);

typedef struct {
    void *(*aggregate_context)(sqlite3_context *, int);
    Any before_bind_blob[1];
    int (*bind_blob)(sqlite3_stmt *, int, const void *, int, Destroy);
    int (*bind_double)(sqlite3_stmt *, int, double);
    Any before_bind_int64[1];
    int (*bind_int64)(sqlite3_stmt *, int, int64_t);
    int (*bind_null)(sqlite3_stmt *, int);
    Any before_bind_text[3];
    int (*bind_text)(sqlite3_stmt *, int, const char *, int, Destroy);
    Any before_bind_value[1];
    int (*bind_value)(sqlite3_stmt *, int, const sqlite3_value *);
    Any before_changes[2];
    int (*changes)(sqlite3 *);
    Any before_column_blob[3];
    const void *(*column_blob)(sqlite3_stmt *, int);
    int (*column_bytes)(sqlite3_stmt *, int);
    Any before_column_count[1];
    int (*column_count)(sqlite3_stmt *);
    Any before_column_double[4];
    double (*column_double)(sqlite3_stmt *, int);
    Any before_column_int64[1];
    int64_t (*column_int64)(sqlite3_stmt *, int);
    Any before_column_text[6];
    const unsigned char *(*column_text)(sqlite3_stmt *, int);
    Any before_column_type[1];
    int (*column_type)(sqlite3_stmt *, int);
    sqlite3_value *(*column_value)(sqlite3_stmt *, int);
    Any before_create_function[5];
    int (*create_function)(sqlite3 *, const char *, int, int, void *, Function, Function, Destroy);
    Any before_create_module[1];
    int (*create_module)(sqlite3 *, const char *, const sqlite3_module *, void *);
    Any before_declare[2];
    int (*declare_vtab)(sqlite3 *, const char *);
    Any before_errcode[1];
    int (*errcode)(sqlite3 *);
    const char *(*errmsg)(sqlite3 *);
    Any before_finalize[3];
    int (*finalize)(sqlite3_stmt *);
    Any before_mprintf[11];
    char *(*mprintf)(const char *, ...);
    Any before_reset[7];
    int (*reset)(sqlite3_stmt *);
    void (*result_blob)(sqlite3_context *, const void *, int, Destroy);
    void (*result_double)(sqlite3_context *, double);
    void (*result_error)(sqlite3_context *, const char *, int);
    Any before_result_int64[2];
    void (*result_int64)(sqlite3_context *, int64_t);
    void (*result_null)(sqlite3_context *);
    void (*result_text)(sqlite3_context *, const char *, int, Destroy);
    Any before_result_value[3];
    void (*result_value)(sqlite3_context *, sqlite3_value *);
    Any before_step[4];
    int (*step)(sqlite3_stmt *);
    Any before_value_blob[7];
    const void *(*value_blob)(sqlite3_value *);
    int (*value_bytes)(sqlite3_value *);
    Any before_value_double[1];
    double (*value_double)(sqlite3_value *);
    Any before_value_int64[1];
    int64_t (*value_int64)(sqlite3_value *);
    Any before_value_text[1];
    const unsigned char *(*value_text)(sqlite3_value *);
    Any before_value_type[3];
    int (*value_type)(sqlite3_value *);
    Any before_result_error_code[32];
    void (*result_error_code)(sqlite3_context *, int);
    Any before_context_db[2];
    sqlite3 *(*context_db)(sqlite3_context *);
    Any before_prepare[67];
    int (*prepare)(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **, const char **);
    Any before_create_window[21];
    int (*create_window)(sqlite3 *, const char *, int, int, void *, Function, Final, Final, Function,
                         Destroy);
} sqlite3_api; /* `context_db` is `context_db_handle`, `prepare` is `prepare_v3` */

#endif
