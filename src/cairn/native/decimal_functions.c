/* Functions of SQL on DECIMAL: equal to `sql/functions/numbers.py`, byte by byte.

   What has more than 38 digits, is of another type or is refused goes to the function of Python, which
   is there by the name `p_…` as well: so all errors are told by one side. */

#include "batch.h"
#include "packing.h"
#include "twins.h"

#include <stdio.h>
#include <string.h>

#define DETERMINISTIC_UTF8 0x801
#define COPIED ((Destroy)-1)
#define EXACT_REAL (1ULL << 53)
#define EXACT_POWER 22 /* of ten, as a real */
#define MIN_SIGNIFICANT 16 /* digits that a quotient has at least */

const sqlite3_api *decimal_sqlite;
#define sqlite decimal_sqlite

typedef enum { TO_NEAREST, DOWN, TO_FLOOR, TO_CEILING } Rounding;

void fail_likewise(sqlite3_context *context)
{
    sqlite3 *db = sqlite->context_db(context);
    sqlite->result_error(context, sqlite->errmsg(db), -1);
    sqlite->result_error_code(context, sqlite->errcode(db));
}

void ask_python(sqlite3_context *context, const char *name, int count, sqlite3_value **values)
{
    sqlite3 *db = sqlite->context_db(context);
    sqlite3_stmt *statement = NULL;
    char sql[64];
    static const char *const MARKS[] = {"", "?1", "?1,?2", "?1,?2,?3", "?1,?2,?3,?4"};
    int length = snprintf(sql, sizeof sql, "SELECT p_%s(%s)", name, MARKS[count]);
    int state = sqlite->prepare(db, sql, length, 0, &statement, NULL);
    for (int at = 0; state == SQLITE_OK && at < count; at++)
        state = sqlite->bind_value(statement, at + 1, values[at]);
    if (state == SQLITE_OK)
        state = sqlite->step(statement);
    if (state == SQLITE_ROW)
        sqlite->result_value(context, sqlite->column_value(statement, 0));
    else
        fail_likewise(context);
    if (statement)
        sqlite->finalize(statement);
}

int any_null(sqlite3_context *context, int count, sqlite3_value **values)
{
    for (int at = 0; at < count; at++)
        if (sqlite->value_type(values[at]) == SQLITE_NULL) {
            sqlite->result_null(context);
            return 1;
        }
    return 0;
}

int read_decimal(sqlite3_value *value, Number *found)
{
    if (sqlite->value_type(value) != SQLITE_BLOB)
        return 0;
    const uint8_t *data = sqlite->value_blob(value);
    return decimal_read(data, (size_t)sqlite->value_bytes(value), found);
}

static int read_whole(sqlite3_value *value, int least, int most, int *found)
{
    if (sqlite->value_type(value) != SQLITE_INTEGER)
        return 0;
    int64_t number = sqlite->value_int64(value);
    *found = (int)number;
    return number >= least && number <= most;
}

void tell_decimal(sqlite3_context *context, const Number *number, int is_shown)
{
    uint8_t bytes[ENCODED_MOST];
    size_t length = decimal_write(number, is_shown, bytes);
    sqlite->result_blob(context, bytes, (int)length, COPIED);
}

/* The same number with more digits behind the point; 0: it would have too many. */
static int widen(Number *number, int scale)
{
    int more = scale - number->scale;
    if (scale > MOST_SCALE || more > MOST_DIGITS)
        return 0;
    Wide power = ten_to(more);
    if (number->digits > (ten_to(MOST_DIGITS) - 1) / power)
        return 0;
    number->digits *= power;
    number->scale = scale;
    return 1;
}

static int add(Number a, Number b, Number *sum)
{
    int scale = a.scale > b.scale ? a.scale : b.scale;
    if (!widen(&a, scale) || !widen(&b, scale))
        return 0;
    sum->scale = scale;
    if (a.is_negative == b.is_negative) {
        sum->digits = a.digits + b.digits; /* below 2 * 10^38, which 128 bits hold */
        sum->is_negative = a.is_negative;
    } else {
        int is_first = a.digits >= b.digits;
        sum->digits = is_first ? a.digits - b.digits : b.digits - a.digits;
        sum->is_negative = is_first ? a.is_negative : b.is_negative;
    }
    return 1;
}

static int subtract(Number a, Number b, Number *difference)
{
    b.is_negative = !b.is_negative;
    return add(a, b, difference);
}

static int multiply(Number a, Number b, Number *product)
{
    product->scale = a.scale + b.scale;
    product->is_negative = a.is_negative != b.is_negative;
    return product->scale <= MOST_SCALE &&
           !__builtin_mul_overflow(a.digits, b.digits, &product->digits);
}

/* Weight and value of the first digit to the base of 10,000, which PostgreSQL's rule looks at. */
static void first_group(const Number *number, int *weight, Wide *value)
{
    uint8_t digits[48];
    int count = digits_of(number->digits, digits);
    *weight = 0;
    *value = 0;
    if (!count)
        return;
    int adjusted = count - 1 - number->scale;
    *weight = adjusted >= 0 ? adjusted / 4 : -((3 - adjusted) / 4);
    for (int at = 0, most = adjusted - 4 * *weight; at <= most; at++)
        *value = *value * 10 + (at < count ? digits[at] : 0);
}

static int divide(Number a, Number b, Number *quotient)
{
    int weight_a, weight_b;
    Wide first_a, first_b;
    if (!b.digits)
        return 0;
    first_group(&a, &weight_a, &first_a);
    first_group(&b, &weight_b, &first_b);
    int scale = MIN_SIGNIFICANT - 4 * (weight_a - weight_b - (first_a <= first_b));
    scale = scale > a.scale ? scale : a.scale;
    scale = scale > b.scale ? scale : b.scale;
    if (!widen(&a, scale + b.scale)) /* the scale of the quotient, as that of b goes */
        return 0;
    quotient->digits = a.digits / b.digits;
    Wide rest = a.digits % b.digits;
    quotient->digits += rest >= b.digits - rest; /* half goes away from zero */
    quotient->scale = scale;
    quotient->is_negative = a.is_negative != b.is_negative;
    return 1;
}

static int to_places(Number number, int places, Rounding rounding, Number *found)
{
    *found = number;
    if (places >= number.scale)
        return widen(found, places);
    int less = number.scale - places;
    if (less > MOST_DIGITS)
        return 0;
    Wide unit = ten_to(less), rest = number.digits % unit;
    found->digits = number.digits / unit;
    int is_up = rest && ((rounding == TO_NEAREST && rest >= unit - rest) ||
                         (rounding == TO_FLOOR && number.is_negative) ||
                         (rounding == TO_CEILING && !number.is_negative));
    found->digits += (Wide)is_up;
    found->scale = places;
    if (places >= 0)
        return 1;
    found->scale = 0; /* zeros before the point */
    return -places <= MOST_DIGITS && found->digits <= (ten_to(MOST_DIGITS) - 1) / ten_to(-places) &&
           (found->digits *= ten_to(-places), 1);
}

/* --- functions of two numbers ----------------------------------------------------------------- */

#define OF_TWO(name, compute, is_shown)                                                            \
    static void name(sqlite3_context *context, int count, sqlite3_value **values)                  \
    {                                                                                              \
        Number a, b, found;                                                                        \
        if (any_null(context, count, values))                                                      \
            return;                                                                                \
        if (read_decimal(values[0], &a) && read_decimal(values[1], &b) && compute(a, b, &found))   \
            tell_decimal(context, &found, is_shown);                                                       \
        else                                                                                       \
            ask_python(context, #name, count, values);                                             \
    }

OF_TWO(n_add, add, 0)
OF_TWO(z_add, add, 1)
OF_TWO(n_sub, subtract, 0)
OF_TWO(z_sub, subtract, 1)
OF_TWO(n_mul, multiply, 0)
OF_TWO(z_mul, multiply, 1)
OF_TWO(n_div, divide, 1)

/* --- functions of one ------------------------------------------------------------------------- */

#define OF_ONE(name, change, is_shown)                                                             \
    static void name(sqlite3_context *context, int count, sqlite3_value **values)                  \
    {                                                                                              \
        Number number;                                                                             \
        if (any_null(context, count, values))                                                      \
            return;                                                                                \
        if (read_decimal(values[0], &number)) {                                                    \
            number.is_negative = change;                                                           \
            tell_decimal(context, &number, is_shown);                                                      \
        } else                                                                                     \
            ask_python(context, #name, count, values);                                             \
    }

OF_ONE(n_neg, !number.is_negative, 0)
OF_ONE(z_neg, !number.is_negative, 1)
OF_ONE(n_abs, 0, 0)
OF_ONE(z_abs, 0, 1)
OF_ONE(n_key, number.is_negative, 0)

#define WITH_PLACES(name, rounding, is_shown)                                                      \
    static void name(sqlite3_context *context, int count, sqlite3_value **values)                  \
    {                                                                                              \
        Number number, found;                                                                      \
        int places = 0;                                                                            \
        if (any_null(context, count, values))                                                      \
            return;                                                                                \
        if (read_decimal(values[0], &number) &&                                                    \
            (count == 1 || read_whole(values[1], -MOST_DIGITS, MOST_DIGITS, &places)) &&           \
            to_places(number, places, rounding, &found))                                           \
            tell_decimal(context, &found, is_shown);                                                       \
        else                                                                                       \
            ask_python(context, #name, count, values);                                             \
    }

WITH_PLACES(n_round, TO_NEAREST, 0)
WITH_PLACES(z_round, TO_NEAREST, 1)
WITH_PLACES(n_trunc, DOWN, 0)
WITH_PLACES(z_trunc, DOWN, 1)
WITH_PLACES(n_floor, TO_FLOOR, 0)
WITH_PLACES(n_ceil, TO_CEILING, 0)

static void n_padded(sqlite3_context *context, int count, sqlite3_value **values)
{
    Number number;
    int scale;
    if (any_null(context, count, values))
        return;
    if (!read_decimal(values[0], &number) || !read_whole(values[1], 0, MOST_SCALE, &scale))
        ask_python(context, "n_padded", count, values);
    else if (number.scale >= scale)
        sqlite->result_value(context, values[0]);
    else if (widen(&number, scale))
        tell_decimal(context, &number, 1);
    else
        ask_python(context, "n_padded", count, values);
}

static void n_scaled(sqlite3_context *context, int count, sqlite3_value **values)
{
    Number number, found;
    int precision, scale;
    if (any_null(context, count, values))
        return;
    if (read_decimal(values[0], &number) && read_whole(values[1], 1, MOST_DIGITS, &precision) &&
        read_whole(values[2], 0, precision, &scale) &&
        to_places(number, scale, TO_NEAREST, &found) && found.digits < ten_to(precision))
        tell_decimal(context, &found, 0);
    else
        ask_python(context, "n_scaled", count, values);
}

static void i_scale(sqlite3_context *context, int count, sqlite3_value **values)
{
    Number number;
    if (any_null(context, count, values))
        return;
    if (read_decimal(values[0], &number))
        sqlite->result_int64(context, number.scale);
    else
        ask_python(context, "i_scale", count, values);
}

/* --- other types ------------------------------------------------------------------------------ */

/* A whole number that has to fit into two or four bytes: the value itself. */
static void i_fit(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (any_null(context, count, values))
        return;
    int64_t number = sqlite->value_int64(values[0]);
    if (sqlite->value_type(values[0]) == SQLITE_INTEGER && has_room(number, (int)sqlite->value_int64(values[1])))
        sqlite->result_int64(context, number);
    else
        ask_python(context, "i_fit", count, values);
}

static void n_of_i(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (any_null(context, count, values))
        return;
    if (sqlite->value_type(values[0]) != SQLITE_INTEGER) {
        ask_python(context, "n_of_i", count, values);
        return;
    }
    int64_t value = sqlite->value_int64(values[0]);
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    Number number = {.digits = size, .scale = 0, .is_negative = value < 0};
    tell_decimal(context, &number, 0);
}

static void i_of_n(sqlite3_context *context, int count, sqlite3_value **values)
{
    Number number, found;
    if (any_null(context, count, values))
        return;
    if (read_decimal(values[0], &number) && to_places(number, 0, TO_NEAREST, &found) &&
        found.digits <= INT64_MAX) {
        int64_t size = (int64_t)found.digits;
        sqlite->result_int64(context, found.is_negative ? -size : size);
    } else
        ask_python(context, "i_of_n", count, values);
}

/* Exact where both numbers are reals: then their quotient is the nearest one. */
static void d_of_n(sqlite3_context *context, int count, sqlite3_value **values)
{
    Number number;
    if (any_null(context, count, values))
        return;
    if (!read_decimal(values[0], &number) || number.digits > EXACT_REAL ||
        number.scale > EXACT_POWER) {
        ask_python(context, "d_of_n", count, values);
        return;
    }
    double found = (double)(uint64_t)number.digits, power = 1;
    for (int at = 0; at < number.scale; at++)
        power *= 10;
    found /= power;
    sqlite->result_double(context, number.is_negative && number.digits ? -found : found);
}

/* A real by the 15 digits that PostgreSQL takes. */
static void n_of_d(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (any_null(context, count, values))
        return;
    double value = sqlite->value_type(values[0]) == SQLITE_FLOAT ? sqlite->value_double(values[0]) : 0;
    int is_zero = value == 0 && sqlite->value_type(values[0]) == SQLITE_FLOAT;
    if (!(value > -1e18 && value < 1e18) || (!is_zero && value < 1e-18 && value > -1e-18)) {
        ask_python(context, "n_of_d", count, values);
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.14e", value); /* d.dddddddddddddde±dd */
    Number number = {.digits = 0, .scale = 14, .is_negative = value < 0};
    const char *at = text + number.is_negative;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            number.digits = number.digits * 10 + (Wide)(*at - '0');
    int exponent = 0, is_below = *at && at[1] == '-';
    for (at += *at ? 2 : 0; *at >= '0' && *at <= '9'; at++)
        exponent = exponent * 10 + (*at - '0');
    number.scale -= is_below ? -exponent : exponent;
    if (number.scale < 0) {
        number.digits *= ten_to(-number.scale); /* at most 10^18 */
        number.scale = 0;
    }
    tell_decimal(context, &number, 0);
}

static const Known DECIMALS[] = {
    {"n_add", 2, n_add}, {"z_add", 2, z_add}, {"n_sub", 2, n_sub}, {"z_sub", 2, z_sub},
    {"n_mul", 2, n_mul}, {"z_mul", 2, z_mul}, {"n_div", 2, n_div}, {"n_neg", 1, n_neg},
    {"z_neg", 1, z_neg}, {"n_abs", 1, n_abs}, {"z_abs", 1, z_abs}, {"n_key", 1, n_key},
    {"n_round", 1, n_round}, {"n_round", 2, n_round}, {"z_round", 2, z_round},
    {"n_trunc", 1, n_trunc}, {"n_trunc", 2, n_trunc}, {"z_trunc", 2, z_trunc},
    {"n_floor", 1, n_floor}, {"n_ceil", 1, n_ceil}, {"n_padded", 2, n_padded},
    {"n_scaled", 3, n_scaled}, {"i_scale", 1, i_scale}, {"n_of_i", 1, n_of_i},
    {"i_fit", 2, i_fit}, {"i_of_n", 1, i_of_n}, {"d_of_n", 1, d_of_n}, {"n_of_d", 1, n_of_d},
    {NULL, 0, NULL},
};

int twin_functions(sqlite3 *db, const sqlite3_api *api)
{
    const Known *const ALL[] = {DECIMALS, TIMES, LIKES, JSONS, TEXTS_IN_C};
    sqlite = api;
    for (size_t list = 0; list < sizeof ALL / sizeof *ALL; list++)
        for (const Known *each = ALL[list]; each->name; each++) {
            int state = api->create_function(db, each->name, each->count, DETERMINISTIC_UTF8, NULL,
                                             each->function, NULL, NULL);
            if (state != SQLITE_OK)
                return state;
        }
    int state = decimal_sums(db);
    return state == SQLITE_OK ? packed_groups(db) : state;
}
