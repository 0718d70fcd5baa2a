/* LIKE and ILIKE: equal to `sql/functions/patterns.py`.

   When a text does not fit behind a `%`, the next place is tried: at worst the length of the text times
   that of the pattern. So only short ones are looked at here; Python's way is linear for all. */

#include "twins.h"

#define sqlite decimal_sqlite
#define MOST_WORK 65536

typedef struct {
    const uint8_t *at, *end;
} Span;

static int read_span(sqlite3_value *value, Span *found)
{
    if (sqlite->value_type(value) != SQLITE_TEXT)
        return 0;
    found->at = sqlite->value_text(value);
    found->end = found->at + sqlite->value_bytes(value);
    return found->at != NULL;
}

static const uint8_t *after_character(const uint8_t *at, const uint8_t *end)
{
    for (at++; at < end && (*at & 0xc0) == 0x80; at++)
        ;
    return at;
}

static int is_ascii(Span span)
{
    for (; span.at < span.end; span.at++)
        if (*span.at & 0x80)
            return 0;
    return 1;
}

static uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
}

/* Whether the pattern is whole: none of its characters is escaped by nothing. */
static int is_sound(Span pattern, int escape)
{
    for (; pattern.at < pattern.end; pattern.at++)
        if (*pattern.at == escape && ++pattern.at == pattern.end)
            return 0;
    return 1;
}

static int matches(Span text, Span pattern, int escape, int ignores_case)
{
    const uint8_t *again = NULL; /* behind the last %, and the text that was tried there */
    const uint8_t *tried = NULL;
    while (text.at < text.end) {
        const uint8_t *at = pattern.at;
        int is_plain = at < pattern.end && *at == escape; /* what follows means itself */
        if (!is_plain && at < pattern.end && *at == '%') {
            again = ++pattern.at;
            tried = text.at;
            continue;
        }
        at += is_plain;
        if (at < pattern.end && !is_plain && *at == '_') {
            text.at = after_character(text.at, text.end);
            pattern.at = at + 1;
        } else if (at < pattern.end &&
                   (*at == *text.at || (ignores_case && lower(*at) == lower(*text.at)))) {
            text.at++;
            pattern.at = at + 1;
        } else if (again) {
            text.at = tried = after_character(tried, text.end);
            pattern.at = again;
        } else
            return 0;
    }
    while (pattern.at < pattern.end && *pattern.at == '%' && escape != '%')
        pattern.at++;
    return pattern.at == pattern.end;
}

static void look(sqlite3_context *context, int count, sqlite3_value **values, int ignores_case)
{
    Span text, pattern, escape;
    const char *name = ignores_case ? "c_ilike" : "c_like";
    if (any_null(context, count, values))
        return;
    int is_taken = read_span(values[0], &text) && read_span(values[1], &pattern) &&
                   read_span(values[2], &escape) && escape.end - escape.at <= 1 &&
                   (text.end - text.at + 1) * (pattern.end - pattern.at + 1) <= MOST_WORK;
    int mark = is_taken && escape.at < escape.end ? *escape.at : -1;
    if (is_taken && mark < 0x80 && is_sound(pattern, mark) &&
        (!ignores_case || (is_ascii(text) && is_ascii(pattern))))
        sqlite->result_int64(context, matches(text, pattern, mark, ignores_case));
    else
        ask_python(context, name, count, values);
}

static void c_like(sqlite3_context *context, int count, sqlite3_value **values)
{
    look(context, count, values, 0);
}

static void c_ilike(sqlite3_context *context, int count, sqlite3_value **values)
{
    look(context, count, values, 1);
}

const Known LIKES[] = {{"c_like", 3, c_like}, {"c_ilike", 3, c_ilike}, {NULL, 0, NULL}};
