/* Arithmetic of SQL for SQLite: equal to `sql/functions/numbers.py`, value by value.

   A function of Python takes the interpreter's lock for each row, away from everybody else. What
   goes wrong is told in the same words, by which `storage/readers.py` knows the error. */

#include "batch.h"
#include "twins.h"
#include "reals.h"

#include <math.h>

#define DAY_US 86400000000LL
#define DETERMINISTIC_UTF8 0x801
#define COPIED ((Destroy)-1) /* SQLite makes its own copy */

static const sqlite3_api *sqlite;

static const char OUT_OF_RANGE[] = "integer out of range";
static const char BY_ZERO[] = "division by zero";
static const char TOO_LARGE[] = "value out of range: overflow";
static const char TOO_SMALL[] = "value out of range: underflow";
static const char NO_NUMBER[] = "NaN is not a value here";
static const char OTHER_TYPE[] = "an argument is of another type";

static void fail(sqlite3_context *context, const char *why)
{
    sqlite->result_error(context, why, -1);
}

/* Whether all arguments are there; if not, the answer is NULL. */
static int all_there(sqlite3_context *context, int count, sqlite3_value **values)
{
    for (int at = 0; at < count; at++)
        if (sqlite->value_type(values[at]) == SQLITE_NULL) {
            sqlite->result_null(context);
            return 0;
        }
    return 1;
}

static int wholes(sqlite3_context *context, int count, sqlite3_value **values, int64_t *found)
{
    if (!all_there(context, count, values))
        return 0;
    for (int at = 0; at < count; at++) {
        if (sqlite->value_type(values[at]) != SQLITE_INTEGER)
            return fail(context, OTHER_TYPE), 0;
        found[at] = sqlite->value_int64(values[at]);
    }
    return 1;
}

static int reals(sqlite3_context *context, int count, sqlite3_value **values, double *found)
{
    if (!all_there(context, count, values))
        return 0;
    for (int at = 0; at < count; at++) {
        if (sqlite->value_type(values[at]) > SQLITE_FLOAT)
            return fail(context, OTHER_TYPE), 0;
        found[at] = sqlite->value_double(values[at]);
    }
    return 1;
}

/* --- whole numbers ---------------------------------------------------------------------------- */

static void told_whole(sqlite3_context *context, int is_outside, int64_t value)
{
    if (is_outside)
        fail(context, OUT_OF_RANGE);
    else
        sqlite->result_int64(context, value);
}

static void i_add(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[2], found = 0;
    if (!wholes(context, count, values, a))
        return;
    int is_outside = __builtin_add_overflow(a[0], a[1], &found);
    told_whole(context, is_outside, found);
}

static void i_sub(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[2], found = 0;
    if (!wholes(context, count, values, a))
        return;
    int is_outside = __builtin_sub_overflow(a[0], a[1], &found);
    told_whole(context, is_outside, found);
}

static void i_mul(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[2], found = 0;
    if (!wholes(context, count, values, a))
        return;
    int is_outside = __builtin_mul_overflow(a[0], a[1], &found);
    told_whole(context, is_outside, found);
}

static void i_div(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[2];
    if (!wholes(context, count, values, a))
        return;
    if (!a[1])
        fail(context, BY_ZERO);
    else if (a[1] == -1) /* the lowest number has no opposite */
        told_whole(context, a[0] == INT64_MIN, a[0] == INT64_MIN ? 0 : -a[0]);
    else
        sqlite->result_int64(context, a[0] / a[1]);
}

static void i_mod(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[2];
    if (!wholes(context, count, values, a))
        return;
    if (!a[1])
        fail(context, BY_ZERO);
    else
        sqlite->result_int64(context, a[1] == -1 ? 0 : a[0] % a[1]);
}

static void i_neg(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    if (wholes(context, count, values, a))
        told_whole(context, a[0] == INT64_MIN, a[0] == INT64_MIN ? 0 : -a[0]);
}

static void i_abs(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    if (wholes(context, count, values, a))
        told_whole(context, a[0] == INT64_MIN, a[0] == INT64_MIN || a[0] >= 0 ? a[0] : -a[0]);
}

static void b_of_i(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    if (wholes(context, count, values, a))
        sqlite->result_int64(context, a[0] != 0);
}

static void i_of_b(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    if (wholes(context, count, values, a))
        sqlite->result_int64(context, a[0]);
}

/* The midnight before. */
static void t_date(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1], found = 0;
    if (!wholes(context, count, values, a))
        return;
    int64_t since = a[0] % DAY_US;
    int is_outside = __builtin_sub_overflow(a[0], since < 0 ? since + DAY_US : since, &found);
    told_whole(context, is_outside, found);
}

static void s_of_i(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    uint8_t text[24], *to = text;
    if (!wholes(context, count, values, a))
        return;
    if (a[0] < 0)
        *to++ = '-';
    to = put_digits(to, a[0] < 0 ? 0 - (uint64_t)a[0] : (uint64_t)a[0], 1);
    sqlite->result_text(context, (char *)text, (int)(to - text), COPIED);
}

/* --- reals ------------------------------------------------------------------------------------ */

static void told_real(sqlite3_context *context, double value, const double *given)
{
    if (isinf(value) && !isinf(given[0]) && !isinf(given[1]))
        fail(context, TOO_LARGE);
    else if (isnan(value))
        fail(context, NO_NUMBER);
    else
        sqlite->result_double(context, value);
}

static void d_add(sqlite3_context *context, int count, sqlite3_value **values)
{
    double a[2];
    if (reals(context, count, values, a))
        told_real(context, a[0] + a[1], a);
}

static void d_sub(sqlite3_context *context, int count, sqlite3_value **values)
{
    double a[2];
    if (reals(context, count, values, a))
        told_real(context, a[0] - a[1], a);
}

static void d_mul(sqlite3_context *context, int count, sqlite3_value **values)
{
    double a[2];
    if (!reals(context, count, values, a))
        return;
    double found = a[0] * a[1];
    if (found == 0 && a[0] != 0 && a[1] != 0)
        fail(context, TOO_SMALL);
    else
        told_real(context, found, a);
}

static void d_div(sqlite3_context *context, int count, sqlite3_value **values)
{
    double a[2];
    if (!reals(context, count, values, a))
        return;
    if (a[1] == 0)
        fail(context, BY_ZERO);
    else
        told_real(context, a[0] / a[1], a);
}

static void d_of_i(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t a[1];
    if (wholes(context, count, values, a))
        sqlite->result_double(context, (double)a[0]);
}

static void i_of_d(sqlite3_context *context, int count, sqlite3_value **values)
{
    double a[1];
    if (!reals(context, count, values, a))
        return;
    double found = rint(a[0]);
    int is_inside = found >= -9223372036854775808.0 && found < 9223372036854775808.0;
    told_whole(context, !is_inside, is_inside ? (int64_t)found : 0);
}

/* --- texts ------------------------------------------------------------------------------------ */

static void c_length(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (!all_there(context, count, values))
        return;
    if (sqlite->value_type(values[0]) != SQLITE_TEXT) {
        fail(context, OTHER_TYPE);
        return;
    }
    const uint8_t *text = sqlite->value_text(values[0]);
    int length = sqlite->value_bytes(values[0]), characters = 0;
    for (int at = 0; text && at < length; at++)
        characters += (text[at] & 0xc0) != 0x80;
    sqlite->result_int64(context, characters);
}

static const struct {
    const char *name;
    int count;
    Function function;
} FUNCTIONS[] = {
    {"i_add", 2, i_add}, {"i_sub", 2, i_sub}, {"i_mul", 2, i_mul}, {"i_div", 2, i_div},
    {"i_mod", 2, i_mod}, {"i_neg", 1, i_neg}, {"i_abs", 1, i_abs}, {"b_of_i", 1, b_of_i},
    {"i_of_b", 1, i_of_b}, {"t_date", 1, t_date}, {"s_of_i", 1, s_of_i}, {"d_add", 2, d_add},
    {"d_sub", 2, d_sub}, {"d_mul", 2, d_mul}, {"d_div", 2, d_div}, {"d_of_i", 1, d_of_i},
    {"i_of_d", 1, i_of_d}, {"c_length", 1, c_length},
};

/* Called by SQLite when a connection loads this library for its functions. */
EXPORT int cairn_functions(sqlite3 *db, char **message, const sqlite3_api *api)
{
    (void)message;
    sqlite = api;
    for (size_t at = 0; at < sizeof FUNCTIONS / sizeof *FUNCTIONS; at++) {
        int state = api->create_function(db, FUNCTIONS[at].name, FUNCTIONS[at].count,
                                         DETERMINISTIC_UTF8, NULL, FUNCTIONS[at].function, NULL, NULL);
        if (state != SQLITE_OK)
            return state;
    }
    return twin_functions(db, api);
}
