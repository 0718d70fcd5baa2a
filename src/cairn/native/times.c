/* Fields, beginnings and shifts of times: equal to `sql/functions/times.py`, value by value.

   Times are microseconds since 1970 in UTC. C takes the years 1 to 9999 and the usual words; other
   spellings of a unit, and what leaves these years, are left to Python. */

#include "times.h"

#include "twins.h"

#include <string.h>

#define sqlite decimal_sqlite
#define FIRST_DAY (-719162LL) /* 0001-01-01 */
#define LAST_DAY 2932896LL    /* 9999-12-31 */
#define DAYS_BEFORE 719468LL  /* of 1970, since 0000-03-01 */
#define DAYS_OF_400 146097LL  /* years */

static int64_t floored(int64_t value, int64_t size)
{
    return value / size - (value % size < 0);
}

/* Years are counted from March here, so that a leap day is the last one of its year. */
static void set_date(Moment *moment)
{
    int64_t days = moment->day + DAYS_BEFORE, era = floored(days, DAYS_OF_400);
    int of_era = (int)(days - era * DAYS_OF_400);
    int year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year + year / 4 - year / 100);
    int month = (5 * of_year + 2) / 153;
    moment->of_month = of_year - (153 * month + 2) / 5 + 1;
    moment->month = month < 10 ? month + 3 : month - 9;
    moment->year = year + (int)era * 400 + (moment->month <= 2);
}

static int64_t day_of(int year, int month, int of_month)
{
    year -= month <= 2;
    int64_t era = floored(year, 400);
    int of_era = year - (int)era * 400;
    int of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + of_month - 1;
    return era * DAYS_OF_400 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE;
}

int moment_of(int64_t micros, Moment *found)
{
    found->day = floored(micros, DAY);
    if (found->day < FIRST_DAY || found->day > LAST_DAY)
        return 0;
    found->micros = micros - found->day * DAY;
    set_date(found);
    return 1;
}

static int read_moment(sqlite3_value *value, Moment *found)
{
    return sqlite->value_type(value) == SQLITE_INTEGER && moment_of(sqlite->value_int64(value), found);
}

static int days_in(int year, int month)
{
    return (int)(day_of(month == 12 ? year + 1 : year, month == 12 ? 1 : month + 1, 1) -
                 day_of(year, month, 1));
}

/* --- words ------------------------------------------------------------------------------------ */

enum {
    YEAR, QUARTER, MONTH, WEEK, DAYS, HOUR, MINUTE, SECONDS, MILLISECONDS, MICROSECONDS, EPOCH, DOW,
    ISODOW, DOY, UNKNOWN
};
static const char *const WORDS[] = {"year", "quarter", "month", "week", "day", "hour", "minute",
                                    "second", "milliseconds", "microseconds", "epoch", "dow",
                                    "isodow", "doy"};

static int read_unit(sqlite3_value *value)
{
    if (sqlite->value_type(value) != SQLITE_TEXT)
        return UNKNOWN;
    const char *text = (const char *)sqlite->value_text(value);
    size_t length = (size_t)sqlite->value_bytes(value);
    for (int unit = 0; text && unit < UNKNOWN; unit++)
        if (strlen(WORDS[unit]) == length && !memcmp(WORDS[unit], text, length))
            return unit;
    return UNKNOWN;
}

/* --- fields ----------------------------------------------------------------------------------- */

/* Monday is 1. */
static int weekday(int64_t day)
{
    return (int)((day % 7 + 7 + 3) % 7) + 1;
}

/* The week of the year to which its Thursday belongs. */
static int week_of(const Moment *moment)
{
    Moment thursday = {.day = moment->day + 4 - weekday(moment->day)};
    set_date(&thursday);
    return (int)(thursday.day - day_of(thursday.year, 1, 1)) / 7 + 1;
}

static void put(Number *found, int64_t value, int scale)
{
    found->is_negative = value < 0;
    found->digits = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    found->scale = scale;
}

static int field(const Moment *moment, int unit, Number *found)
{
    int64_t clock = moment->micros;
    switch (unit) {
    case YEAR: put(found, moment->year, 0); break;
    case QUARTER: put(found, (moment->month + 2) / 3, 0); break;
    case MONTH: put(found, moment->month, 0); break;
    case WEEK: put(found, week_of(moment), 0); break;
    case DAYS: put(found, moment->of_month, 0); break;
    case HOUR: put(found, clock / (3600 * SECOND), 0); break;
    case MINUTE: put(found, clock / (60 * SECOND) % 60, 0); break;
    case SECONDS: put(found, clock % (60 * SECOND), 6); break;
    case MILLISECONDS: put(found, clock % (60 * SECOND), 3); break;
    case MICROSECONDS: put(found, clock % (60 * SECOND), 0); break;
    case EPOCH: put(found, moment->day * DAY + clock, 6); break;
    case DOW: put(found, weekday(moment->day) % 7, 0); break;
    case ISODOW: put(found, weekday(moment->day), 0); break;
    case DOY: put(found, moment->day - day_of(moment->year, 1, 1) + 1, 0); break;
    default: return 0;
    }
    return 1;
}

static void n_extract(sqlite3_context *context, int count, sqlite3_value **values)
{
    Moment moment;
    Number found;
    if (any_null(context, count, values))
        return;
    if (read_moment(values[0], &moment) && field(&moment, read_unit(values[1]), &found))
        tell_decimal(context, &found, 1);
    else
        ask_python(context, "n_extract", count, values);
}

static void d_part(sqlite3_context *context, int count, sqlite3_value **values)
{
    Moment moment;
    Number found;
    if (any_null(context, count, values))
        return;
    if (!read_moment(values[1], &moment) || !field(&moment, read_unit(values[0]), &found) ||
        found.digits > 1ULL << 53) { /* else the quotient of two reals is the nearest one */
        ask_python(context, "d_part", count, values);
        return;
    }
    double value = (double)(uint64_t)found.digits / (double)(uint64_t)ten_to(found.scale);
    sqlite->result_double(context, found.is_negative ? -value : value);
}

/* --- beginnings and shifts -------------------------------------------------------------------- */

static void tell_moment(sqlite3_context *context, int64_t day, int64_t micros)
{
    sqlite->result_int64(context, day * DAY + micros);
}

static void t_trunc(sqlite3_context *context, int count, sqlite3_value **values)
{
    Moment moment;
    if (any_null(context, count, values))
        return;
    int unit = read_unit(values[0]), is_taken = read_moment(values[1], &moment);
    int64_t clock = is_taken ? moment.micros : 0;
    switch (is_taken ? unit : UNKNOWN) {
    case YEAR: tell_moment(context, day_of(moment.year, 1, 1), 0); break;
    case QUARTER: tell_moment(context, day_of(moment.year, (moment.month - 1) / 3 * 3 + 1, 1), 0); break;
    case MONTH: tell_moment(context, day_of(moment.year, moment.month, 1), 0); break;
    case DAYS: tell_moment(context, moment.day, 0); break;
    case HOUR: tell_moment(context, moment.day, clock - clock % (3600 * SECOND)); break;
    case MINUTE: tell_moment(context, moment.day, clock - clock % (60 * SECOND)); break;
    case SECONDS: tell_moment(context, moment.day, clock - clock % SECOND); break;
    case WEEK: /* the first one may begin before the first year */
        if (moment.day - weekday(moment.day) + 1 >= FIRST_DAY) {
            tell_moment(context, moment.day - weekday(moment.day) + 1, 0);
            break;
        } /* fall through */
    default: ask_python(context, "t_trunc", count, values);
    }
}

static int read_number(sqlite3_value *value, int64_t most, int64_t *found)
{
    if (sqlite->value_type(value) != SQLITE_INTEGER)
        return 0;
    *found = sqlite->value_int64(value);
    return *found >= -most && *found <= most;
}

/* Months first; the day is kept in its month. */
static void t_shift(sqlite3_context *context, int count, sqlite3_value **values)
{
    Moment moment;
    int64_t months, days, rest;
    if (any_null(context, count, values))
        return;
    int is_taken = read_moment(values[0], &moment) && read_number(values[1], 120000, &months) &&
                   read_number(values[2], 4000000, &days) && read_number(values[3], DAY * 4000000, &rest);
    if (is_taken && months) {
        int64_t all = moment.year * 12LL + moment.month - 1 + months;
        int year = (int)floored(all, 12), month = (int)(all - floored(all, 12) * 12) + 1;
        is_taken = year >= 1 && year <= 9999;
        if (is_taken) {
            int last = days_in(year, month);
            moment.day = day_of(year, month, moment.of_month < last ? moment.of_month : last);
        }
    }
    if (is_taken) {
        int64_t micros = moment.micros + rest, more = floored(micros, DAY);
        moment.day += days + more;
        moment.micros = micros - more * DAY;
        is_taken = moment.day >= FIRST_DAY && moment.day <= LAST_DAY;
    }
    if (is_taken)
        tell_moment(context, moment.day, moment.micros);
    else
        ask_python(context, "t_shift", count, values);
}

const Known TIMES[] = {
    {"n_extract", 2, n_extract}, {"d_part", 2, d_part}, {"t_trunc", 2, t_trunc},
    {"t_shift", 4, t_shift}, {NULL, 0, NULL},
};
