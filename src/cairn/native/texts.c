/* split_part, and a text as a whole number: equal to `sql/functions/words.py` and `functions.py`. */

#include "twins.h"
#include "wholes.h"

#include <string.h>

#define sqlite decimal_sqlite
#define BYTES_MOST 65536

static void i_parse(sqlite3_context *context, int count, sqlite3_value **values)
{
    int64_t number;
    if (any_null(context, count, values))
        return;
    if (sqlite->value_type(values[0]) == SQLITE_TEXT) {
        const uint8_t *text = sqlite->value_text(values[0]);
        if (text && whole_number(text, text + sqlite->value_bytes(values[0]), &number)) {
            sqlite->result_int64(context, number);
            return;
        }
    }
    ask_python(context, "i_parse", count, values);
}

/* Where the first `length` bytes of `part` stand in the text; its end: nowhere. */
static const char *find(const char *at, const char *end, const char *part, int length)
{
    for (; end - at >= length; at++) {
        at = memchr(at, *part, (size_t)(end - at));
        if (!at || end - at < length)
            return end;
        if (!memcmp(at, part, (size_t)length))
            return at;
    }
    return end;
}

static void c_split_part(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (any_null(context, count, values))
        return;
    int is_plain = sqlite->value_type(values[0]) == SQLITE_TEXT &&
                   sqlite->value_type(values[1]) == SQLITE_TEXT &&
                   sqlite->value_type(values[2]) == SQLITE_INTEGER;
    const char *text = is_plain ? (const char *)sqlite->value_text(values[0]) : NULL;
    const char *mark = is_plain ? (const char *)sqlite->value_text(values[1]) : NULL;
    int size = text ? sqlite->value_bytes(values[0]) : 0, length = mark ? sqlite->value_bytes(values[1]) : 0;
    int64_t place = is_plain ? sqlite->value_int64(values[2]) : 0;
    if (!text || !mark || !length || place < 1 || size > BYTES_MOST) {
        ask_python(context, "c_split_part", count, values);
        return;
    }
    const char *end = text + size, *found = find(text, end, mark, length);
    for (; place > 1 && found < end; place--) {
        text = found + length;
        found = find(text, end, mark, length);
    }
    int told = place > 1 ? 0 : (int)(found - text);
    sqlite->result_text(context, text, told, (Destroy)-1);
}

const Known TEXTS_IN_C[] = {{"i_parse", 1, i_parse}, {"c_split_part", 3, c_split_part}, {NULL, 0, NULL}};
