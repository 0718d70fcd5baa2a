/* Sums of DECIMAL, also over windows: equal to `DecimalSum` and `KeepingSum` of Python.

   A number of 448 bits holds the sum of as many numbers as there can be. What has more than 38 digits
   is added up by Python beside it, and both are put together in the end. */

#include "twins.h"

#include <stdlib.h>
#include <string.h>

#define sqlite decimal_sqlite
#define UTF8 1
#define COPIED ((Destroy)-1)
#define LIMBS 7
#define SUM_SCALE 60 /* of numbers that are added here */
#define E18 1000000000000000000ULL

static const char NO_MEMORY[] = "out of memory";

struct Sum {
    uint64_t total[LIMBS]; /* two's complement, the lowest first; times 10^-scale */
    int scale;
    int64_t count;
    int64_t *scales; /* how many of the numbers have so many digits behind the point */
    int room;
    uint8_t *rest; /* the sum of those that Python adds up, as bytes; NULL: there are none */
    int rest_length;
};

static void multiply(uint64_t *number, int power)
{
    while (power > 0) {
        int part = power < 18 ? power : 18;
        uint64_t factor = (uint64_t)ten_to(part), carry = 0;
        for (int at = 0; at < LIMBS; at++) {
            Wide product = (Wide)number[at] * factor + carry;
            number[at] = (uint64_t)product;
            carry = (uint64_t)(product >> 64);
        }
        power -= part;
    }
}

static void add_to(uint64_t *total, const uint64_t *number, int is_less)
{
    uint64_t carry = (uint64_t)is_less; /* the complement and one */
    for (int at = 0; at < LIMBS; at++) {
        Wide sum = (Wide)total[at] + (is_less ? ~number[at] : number[at]) + carry;
        total[at] = (uint64_t)sum;
        carry = (uint64_t)(sum >> 64);
    }
}

static void negate(uint64_t *number)
{
    uint64_t zero[LIMBS] = {0};
    add_to(zero, number, 1);
    memcpy(number, zero, sizeof zero);
}

static void take(Sum *sum, const Number *number, int is_less)
{
    if (number->scale > sum->scale) {
        int is_negative = sum->total[LIMBS - 1] >> 63 != 0;
        if (is_negative)
            negate(sum->total);
        multiply(sum->total, number->scale - sum->scale);
        if (is_negative)
            negate(sum->total);
        sum->scale = number->scale;
    }
    uint64_t aligned[LIMBS] = {(uint64_t)number->digits, (uint64_t)(number->digits >> 64)};
    multiply(aligned, sum->scale - number->scale);
    add_to(sum->total, aligned, number->is_negative != is_less);
}

/* --- what Python adds up ---------------------------------------------------------------------- */

static int keep(Sum *sum, const void *data, int length)
{
    uint8_t *copy = malloc((size_t)length + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, (size_t)length);
    free(sum->rest);
    sum->rest = copy;
    sum->rest_length = length;
    return 1;
}

/* `sql` with ?1 for the sum so far of what Python adds up. */
static sqlite3_stmt *prepared(sqlite3_context *context, const Sum *sum, const char *sql)
{
    static const uint8_t ZERO[] = {2};
    sqlite3_stmt *statement = NULL;
    int state = sqlite->prepare(sqlite->context_db(context), sql, -1, 0, &statement, NULL);
    if (state == SQLITE_OK)
        sqlite->bind_blob(statement, 1, sum->rest ? sum->rest : ZERO,
                          sum->rest ? sum->rest_length : 1, COPIED);
    return statement;
}

/* Its digits behind the point; -1: it was refused. */
static int64_t take_wide(sqlite3_context *context, Sum *sum, sqlite3_value *value, int is_less)
{
    static const char *const SQL[] = {
        "SELECT p_n_add(?1, ?2), p_i_scale(?2)",
        "SELECT p_n_sub(?1, ?2), p_i_scale(?2)",
    };
    sqlite3_stmt *statement = prepared(context, sum, SQL[is_less]);
    int64_t scale = -1;
    if (!statement || sqlite->bind_value(statement, 2, value) != SQLITE_OK ||
        sqlite->step(statement) != SQLITE_ROW)
        fail_likewise(context);
    else if (!keep(sum, sqlite->column_blob(statement, 0), sqlite->column_bytes(statement, 0)))
        sqlite->result_error(context, NO_MEMORY, -1);
    else
        scale = sqlite->column_int64(statement, 1);
    sqlite->finalize(statement);
    return scale;
}

/* --- steps ------------------------------------------------------------------------------------ */

static int count_scale(Sum *sum, int64_t scale, int change)
{
    if (scale >= sum->room) {
        int room = (int)scale + 32;
        int64_t *larger = realloc(sum->scales, (size_t)room * sizeof *larger);
        if (!larger)
            return 0;
        memset(larger + sum->room, 0, (size_t)(room - sum->room) * sizeof *larger);
        sum->scales = larger;
        sum->room = room;
    }
    sum->scales[scale] += change;
    return 1;
}

static void step(sqlite3_context *context, sqlite3_value *value, int is_less)
{
    Number number;
    if (sqlite->value_type(value) == SQLITE_NULL)
        return;
    Sum *sum = sqlite->aggregate_context(context, sizeof *sum);
    int64_t scale;
    if (!sum) {
        sqlite->result_error(context, NO_MEMORY, -1);
        return;
    }
    if (read_decimal(value, &number) && number.scale <= SUM_SCALE) {
        take(sum, &number, is_less);
        scale = number.scale;
    } else if ((scale = take_wide(context, sum, value, is_less)) < 0)
        return;
    sum->count += is_less ? -1 : 1;
    if (!count_scale(sum, scale, is_less ? -1 : 1))
        sqlite->result_error(context, NO_MEMORY, -1);
}

static void add(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    step(context, values[0], 0);
}

static void remove_(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    step(context, values[0], 1);
}

/* --- answers ---------------------------------------------------------------------------------- */

static int digits_of_total(const Sum *sum, uint8_t *digits, int *is_negative)
{
    uint64_t number[LIMBS];
    uint8_t back[LIMBS * 20];
    int count = 0;
    memcpy(number, sum->total, sizeof number);
    *is_negative = number[LIMBS - 1] >> 63 != 0;
    if (*is_negative)
        negate(number);
    for (int high = LIMBS; high;) {
        Wide rest = 0;
        for (int at = high - 1; at >= 0; at--) {
            rest = rest << 64 | number[at];
            number[at] = (uint64_t)(rest / E18);
            rest %= E18;
        }
        uint64_t part = (uint64_t)rest;
        for (int at = 0; at < 18; at++, part /= 10)
            back[count++] = (uint8_t)(part % 10);
        while (high && !number[high - 1])
            high--;
    }
    while (count && !back[count - 1])
        count--;
    for (int at = 0; at < count; at++)
        digits[at] = back[count - 1 - at];
    return count;
}

/* The most digits behind the point that one of the numbers has. */
static int longest_scale(const Sum *sum)
{
    int longest = sum->room - 1;
    while (longest > 0 && !sum->scales[longest])
        longest--;
    return longest;
}

/* Of what was added up here; how many bytes. */
size_t sum_put(const Sum *sum, int is_shown, uint8_t *bytes)
{
    uint8_t digits[LIMBS * 20];
    int is_negative, count = digits_of_total(sum, digits, &is_negative), scale = sum->scale;
    for (; count && !digits[count - 1]; count--)
        scale--;
    int zeros = is_shown && !sum->rest ? longest_scale(sum) - (count && scale > 0 ? scale : 0) : 0;
    return decimal_put(digits, count, scale, is_negative, zeros, bytes);
}

static void value(sqlite3_context *context, int is_shown)
{
    Sum *sum = sqlite->aggregate_context(context, 0);
    if (!sum || !sum->count) {
        sqlite->result_null(context);
        return;
    }
    uint8_t bytes[ENCODED_MOST];
    int longest = longest_scale(sum);
    size_t length = sum_put(sum, is_shown, bytes);
    if (!sum->rest) {
        sqlite->result_blob(context, bytes, (int)length, COPIED);
        return;
    }
    sqlite3_stmt *statement = prepared(
        context, sum, is_shown ? "SELECT p_n_padded(p_n_add(?1, ?2), ?3)" : "SELECT p_n_add(?1, ?2)");
    if (statement && sqlite->bind_blob(statement, 2, bytes, (int)length, COPIED) == SQLITE_OK &&
        (!is_shown || sqlite->bind_int64(statement, 3, longest) == SQLITE_OK) &&
        sqlite->step(statement) == SQLITE_ROW)
        sqlite->result_value(context, sqlite->column_value(statement, 0));
    else
        fail_likewise(context);
    sqlite->finalize(statement);
}

Sum *sum_new(void)
{
    return calloc(1, sizeof(Sum));
}

/* 0: Python would have to add it up, or there is no memory. */
int sum_add(Sum *sum, sqlite3_value *value)
{
    Number number;
    if (!read_decimal(value, &number) || number.scale > SUM_SCALE || !count_scale(sum, number.scale, 1))
        return 0;
    take(sum, &number, 0);
    sum->count++;
    return 1;
}

void sum_free(Sum *sum)
{
    if (!sum)
        return;
    free(sum->scales);
    free(sum->rest);
    free(sum);
}

static void forget(sqlite3_context *context)
{
    Sum *sum = sqlite->aggregate_context(context, 0);
    if (!sum)
        return;
    free(sum->scales);
    free(sum->rest);
    memset(sum, 0, sizeof *sum);
}

static void plain_value(sqlite3_context *context)
{
    value(context, 0);
}

static void shown_value(sqlite3_context *context)
{
    value(context, 1);
}

static void plain_end(sqlite3_context *context)
{
    value(context, 0);
    forget(context);
}

static void shown_end(sqlite3_context *context)
{
    value(context, 1);
    forget(context);
}

int decimal_sums(sqlite3 *db)
{
    int state = sqlite->create_window(db, "n_sum", 1, UTF8, NULL, add, plain_end, plain_value, remove_,
                                      NULL);
    if (state == SQLITE_OK)
        state = sqlite->create_window(db, "z_sum", 1, UTF8, NULL, add, shown_end, shown_value, remove_,
                                      NULL);
    return state;
}
