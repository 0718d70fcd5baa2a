/* One row by its key: from the bytes of Bind, [Describe,] Execute and Sync to those of the answer.

   The order: `point_bind` reads the parameters and says in which bucket their row is; whoever calls
   finds out whether this instance may tell rows of that bucket; `point_answer` reads and writes them.
   Both are called in one turn of the event loop, with Python's lock held. What is not plain is
   refused with nothing done, and Python does all of it. */

#include "batch.h"
#include "keys.h"
#include "packing.h"
#include "reals.h"
#include "sqlite_abi.h"
#include "utf8.h"

#define PARTS_MOST 32            /* parameters, bindings, parts of a key */
#define ANSWER_MOST (256 * 1024) /* bytes; a longer one is told in pieces */
#define NULL_LENGTH 0xffffffffu
#define BUCKET 0 /* in `bindings`, in the place of a parameter's number */

enum { TEXT_WHOLE = 0, BINARY_WHOLE = 1, TEXTS = 2 };    /* parameters, also `size` for the second */
enum { WHOLE = 0, REAL = 1, OUT_TEXTS = 2, TRUTH = 3 }; /* columns, as in `rows_out.c` */

typedef struct {
    int32_t kind, size;
} Parameter;

typedef struct {
    int32_t kind, is_binary;
} Told;

typedef struct {
    const uint8_t *text; /* NULL: a whole number, or nothing at all */
    int64_t number;
    uint32_t length; /* NULL_LENGTH: NULL */
} Given;

typedef struct {
    const Parameter *parameters;
    const int32_t *bindings, *key; /* numbers of parameters */
    const Told *columns;
    const uint8_t *formats, *bound, *described; /* the end of a Bind; what is told before the rows */
    int32_t formats_length, bound_length, described_length;
    int32_t parameter_count, binding_count, key_count, column_count, bucket_count;
    sqlite3_stmt *statement;
    Given given[PARTS_MOST];
    int64_t bucket;
    int32_t is_described;
} PointPlan;

static const sqlite3_api *sqlite;

/* Called by SQLite when a connection loads this library for its point reads. */
EXPORT int cairn_point_reads(sqlite3 *db, char **message, const sqlite3_api *api)
{
    (void)db, (void)message;
    sqlite = api;
    return SQLITE_OK;
}

EXPORT int point_prepare(PointPlan *plan, sqlite3 *db, const char *sql, int32_t length)
{
    if (!sqlite || plan->parameter_count > PARTS_MOST || plan->binding_count > PARTS_MOST ||
        plan->key_count > PARTS_MOST)
        return ODD;
    int state = sqlite->prepare(db, sql, length, SQLITE_PREPARE_PERSISTENT, &plan->statement, NULL);
    return state == SQLITE_OK && plan->statement ? TAKEN : ODD;
}

EXPORT void point_free(PointPlan *plan)
{
    if (plan->statement)
        sqlite->finalize(plan->statement);
    plan->statement = NULL;
}

/* --- what is asked ---------------------------------------------------------------------------- */

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int whole_of_bytes(const uint8_t *at, uint32_t length, int32_t size, int64_t *number)
{
    if (length != (uint32_t)size)
        return 0;
    int64_t found = (int8_t)at[0];
    for (uint32_t byte = 1; byte < length; byte++)
        found = (int64_t)((uint64_t)found << 8 | at[byte]);
    *number = found;
    return 1;
}

/* Digits, with a minus before them or not; as many as surely fit. */
static int whole_of_text(const uint8_t *at, uint32_t length, int32_t size, int64_t *number)
{
    uint32_t is_negative = length && at[0] == '-', most = size == 8 ? 18 : size == 4 ? 9 : 4;
    int64_t found = 0;
    if (length == is_negative || length - is_negative > most)
        return 0;
    for (uint32_t place = is_negative; place < length; place++) {
        if (at[place] < '0' || at[place] > '9')
            return 0;
        found = found * 10 + (at[place] - '0');
    }
    *number = is_negative ? -found : found;
    return 1;
}

static int take_value(const Parameter *parameter, const uint8_t *at, uint32_t length, Given *given)
{
    given->text = NULL;
    given->number = 0;
    given->length = length;
    if (length == NULL_LENGTH)
        return 1;
    if (parameter->kind == BINARY_WHOLE)
        return whole_of_bytes(at, length, parameter->size, &given->number);
    if (parameter->kind == TEXT_WHOLE)
        return whole_of_text(at, length, parameter->size, &given->number);
    given->text = at;
    return !memchr(at, 0, length) && is_utf8(at, length);
}

/* 0: the key is too long for here. */
static int64_t bucket_of_key(const PointPlan *plan)
{
    uint8_t key[KEY_MOST + PACKED_MOST], *to = key;
    for (int32_t part = 0; part < plan->key_count; part++) {
        const Given *value = &plan->given[plan->key[part] - 1];
        if (to - key + (value->text ? value->length : PACKED_MOST) > KEY_MOST)
            return 0;
        if (value->length == NULL_LENGTH)
            *to++ = 0xc0;
        else if (!value->text)
            to = pack_integer(to, value->number);
        else {
            memcpy(to, value->text, value->length);
            to += value->length;
        }
    }
    return bucket_of(key, (uint32_t)(to - key), (uint32_t)plan->bucket_count);
}

/* `data` begins with a Bind whose parameters begin at `at`. The bucket of their row, or 1 when rows
   are everywhere; 0: something else is asked, or not plainly. */
EXPORT int64_t point_bind(PointPlan *plan, const uint8_t *data, size_t length, size_t at)
{
    static const uint8_t ASKED[] = "D\0\0\0\6P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\4";
    enum { DESCRIBE = 7, ALL = sizeof ASKED - 1 };
    if (length < 5 || at > length)
        return 0;
    size_t end = (size_t)big32(data + 1) + 1;
    if (end > length || at > end)
        return 0;
    for (int32_t number = 0; number < plan->parameter_count; number++) {
        if (end - at < 4)
            return 0;
        uint32_t size = big32(data + at);
        at += 4;
        if (size != NULL_LENGTH && size > end - at)
            return 0;
        if (!take_value(&plan->parameters[number], data + at, size, &plan->given[number]))
            return 0;
        at += size == NULL_LENGTH ? 0 : size;
    }
    if (end - at != (size_t)plan->formats_length || memcmp(data + at, plan->formats, end - at))
        return 0;
    size_t rest = length - end;
    plan->is_described = rest == ALL;
    if (rest != ALL && rest != ALL - DESCRIBE)
        return 0;
    if (memcmp(data + end, ASKED + (ALL - rest), rest))
        return 0;
    plan->bucket = plan->bucket_count ? bucket_of_key(plan) : 1;
    return plan->bucket;
}

/* --- what is told ----------------------------------------------------------------------------- */

static int bind_values(const PointPlan *plan)
{
    int state = SQLITE_OK;
    for (int32_t at = 0; at < plan->binding_count && state == SQLITE_OK; at++) {
        int32_t number = plan->bindings[at];
        if (number == BUCKET) {
            state = sqlite->bind_int64(plan->statement, at + 1, plan->bucket);
            continue;
        }
        const Given *value = &plan->given[number - 1];
        if (value->length == NULL_LENGTH)
            state = sqlite->bind_null(plan->statement, at + 1);
        else if (!value->text)
            state = sqlite->bind_int64(plan->statement, at + 1, value->number);
        else /* the bytes outlive the reading; the next Bind takes their place */
            state = sqlite->bind_text(plan->statement, at + 1, (const char *)value->text,
                                      (int)value->length, NULL);
    }
    return state == SQLITE_OK;
}

/* One value as a field of a DataRow at the end of `out`. */
static int put_value(Batch *out, const PointPlan *plan, int32_t column)
{
    static const int TYPES[] = {SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_TEXT, SQLITE_INTEGER};
    const Told *told = &plan->columns[column];
    sqlite3_stmt *from = plan->statement;
    int type = sqlite->column_type(from, column);
    size_t length = 0;
    const uint8_t *text = NULL;
    if (type != SQLITE_NULL && type != TYPES[told->kind])
        return 0;
    if (type == SQLITE_TEXT) {
        text = sqlite->column_text(from, column);
        length = (size_t)sqlite->column_bytes(from, column);
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
        double number = sqlite->column_double(from, column);
        uint64_t bits;
        memcpy(&bits, &number, 8);
        to = told->is_binary ? put_big(to, bits, 8) : put_real(to, number);
    } else {
        int64_t number = sqlite->column_int64(from, column);
        if (told->kind == TRUTH)
            *to++ = told->is_binary ? number != 0 : number ? 't' : 'f';
        else if (told->is_binary)
            to = put_big(to, (uint64_t)number, 8);
        else {
            if (number < 0)
                *to++ = '-';
            to = put_digits(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, 1);
        }
    }
    if (!to)
        return 0; /* a real that needs an exponent */
    put_big(field, (uint64_t)(to - field - 4), 4);
    out->size += (size_t)(to - field);
    return 1;
}

static int put_row(Batch *out, const PointPlan *plan)
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

static int put_all(Batch *out, const PointPlan *plan)
{
    int32_t length = plan->is_described ? plan->described_length : plan->bound_length;
    int state, rows = 0;
    if (!batch_reserve(out, (size_t)length + 16))
        return -1;
    memcpy(out->data, plan->is_described ? plan->described : plan->bound, (size_t)length);
    out->size = (size_t)length;
    while ((state = sqlite->step(plan->statement)) == SQLITE_ROW) {
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
EXPORT int point_answer(PointPlan *plan, Batch *out)
{
    out->size = out->rows = 0;
    int rows = bind_values(plan) ? put_all(out, plan) : -1;
    sqlite->reset(plan->statement);
    return rows;
}
