/* From the bytes of Bind, [Describe,] Execute and Sync to the values of a statement of SQLite.

   `point_bind` reads the parameters and says in which bucket their row is; whoever calls finds out
   whether this instance may touch rows of that bucket. Python's lock is held. What is not plain is
   refused with nothing done, and Python does all of it. */

#include "batch.h"
#include "keys.h"
#include "packing.h"
#include "point.h"
#include "utf8.h"

const sqlite3_api *point_sqlite;

/* Called by SQLite when a connection loads this library for its points. */
EXPORT int cairn_points(sqlite3 *db, char **message, const sqlite3_api *api)
{
    (void)db, (void)message;
    point_sqlite = api;
    return SQLITE_OK;
}

int point_compile(sqlite3 *db, const char *sql, int32_t length, sqlite3_stmt **statement)
{
    if (!point_sqlite)
        return 0;
    int state =
        point_sqlite->prepare(db, sql, length, SQLITE_PREPARE_PERSISTENT, statement, NULL);
    return state == SQLITE_OK && *statement;
}

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static double real_of(int64_t bits)
{
    double found;
    memcpy(&found, &bits, 8);
    return found;
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

/* NaN is refused, and the two zeros are one: both are left to Python. */
static int real_of_bytes(const uint8_t *at, uint32_t length, Given *given)
{
    if (!whole_of_bytes(at, length, 8, &given->number))
        return 0;
    double found = real_of(given->number);
    given->is_real = 1;
    return found - found == 0 && (found != 0 || given->number == 0);
}

static int truth_of_bytes(const uint8_t *at, uint32_t length, int64_t *number)
{
    *number = length == 1 ? at[0] : 2;
    return *number < 2;
}

/* Microseconds since 2000 to those since 1970; only of years that surely have four digits. */
static int time_of_bytes(const uint8_t *at, uint32_t length, int64_t *number)
{
    const int64_t year = 31556952000000, since_1970 = 946684800000000;
    if (!whole_of_bytes(at, length, 8, number))
        return 0;
    if (*number < -999 * year || *number > 7998 * year)
        return 0;
    *number += since_1970;
    return 1;
}

static int take_value(const Parameter *parameter, const uint8_t *at, uint32_t length, Given *given)
{
    *given = (Given){.length = length};
    if (length == NULL_LENGTH)
        return 1;
    switch (parameter->kind) {
    case BINARY_WHOLE: return whole_of_bytes(at, length, parameter->size, &given->number);
    case TEXT_WHOLE: return whole_of_text(at, length, parameter->size, &given->number);
    case BINARY_REAL: return real_of_bytes(at, length, given);
    case BINARY_TRUTH: return truth_of_bytes(at, length, &given->number);
    case BINARY_TIME: return time_of_bytes(at, length, &given->number);
    }
    given->text = at;
    return !memchr(at, 0, length) && is_utf8(at, length);
}

/* 0: the key is too long for here. */
static int64_t bucket_of_key(const Point *point)
{
    uint8_t key[KEY_MOST + PACKED_MOST], *to = key;
    for (int32_t part = 0; part < point->key_count; part++) {
        const Given *value = &point->given[point->key[part] - 1];
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
    return bucket_of(key, (uint32_t)(to - key), (uint32_t)point->bucket_count);
}

EXPORT int64_t point_bind(Point *point, const uint8_t *data, size_t length, size_t at)
{
    static const uint8_t ASKED[] = "D\0\0\0\6P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\4";
    enum { DESCRIBE = 7, ALL = sizeof ASKED - 1 };
    if (length < 5 || at > length)
        return 0;
    size_t end = (size_t)big32(data + 1) + 1;
    if (end > length || at > end)
        return 0;
    for (int32_t number = 0; number < point->parameter_count; number++) {
        if (end - at < 4)
            return 0;
        uint32_t size = big32(data + at);
        at += 4;
        if (size != NULL_LENGTH && size > end - at)
            return 0;
        if (!take_value(&point->parameters[number], data + at, size, &point->given[number]))
            return 0;
        at += size == NULL_LENGTH ? 0 : size;
    }
    if (end - at != (size_t)point->formats_length || memcmp(data + at, point->formats, end - at))
        return 0;
    size_t rest = length - end;
    point->is_described = rest == ALL;
    if (rest != ALL && rest != ALL - DESCRIBE)
        return 0;
    if (memcmp(data + end, ASKED + (ALL - rest), rest))
        return 0;
    point->bucket = point->bucket_count ? bucket_of_key(point) : 1;
    return point->bucket;
}

int point_give(const Point *point)
{
    int state = SQLITE_OK;
    for (int32_t at = 0; at < point->binding_count && state == SQLITE_OK; at++) {
        int32_t number = point->bindings[at];
        if (number == BUCKET) {
            state = point_sqlite->bind_int64(point->statement, at + 1, point->bucket);
            continue;
        }
        const Given *value = &point->given[number - 1];
        if (value->length == NULL_LENGTH)
            state = point_sqlite->bind_null(point->statement, at + 1);
        else if (value->is_real)
            state = point_sqlite->bind_double(point->statement, at + 1, real_of(value->number));
        else if (!value->text)
            state = point_sqlite->bind_int64(point->statement, at + 1, value->number);
        else /* the bytes outlive the reading; the next Bind takes their place */
            state = point_sqlite->bind_text(point->statement, at + 1, (const char *)value->text,
                                      (int)value->length, NULL);
    }
    return state == SQLITE_OK;
}
