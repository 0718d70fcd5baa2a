/* `->` and `->>` by one key or place: equal to `c_json_path` and `c_json_shown` of `sql/functions/texts.py`.

   A plain text is taken as it is written: no blanks, no escapes, numbers that are written in one way only,
   no name twice in what is told. It is read to its end, for what is no JSON is an error. All else, and
   every error, is left to Python. */

#include "twins.h"
#include "wholes.h"

#include <string.h>

#define sqlite decimal_sqlite
#define DEPTH_MOST 50
#define NAMES_MOST 32     /* of one object that is told whole */
#define BYTES_MOST 262144 /* longer ones are for threads that keep nobody waiting */

typedef struct {
    const uint8_t *at, *end;
} Span;

typedef struct {
    const uint8_t *end;
    int depth;
    int is_exact; /* inside of a value that may be told: it has to be written as Python would */
} Reader;

static int is_same(Span one, Span other)
{
    size_t length = (size_t)(one.end - one.at);
    return length == (size_t)(other.end - other.at) && !memcmp(one.at, other.at, length);
}

/* Behind the text that begins with a quote here; NULL: it is not plain. */
static const uint8_t *after_text(const Reader *reader, const uint8_t *at)
{
    for (at++; at < reader->end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\' || *at < 0x20 || *at == 0x7f)
            return NULL;
    }
    return NULL;
}

static const uint8_t *after_digits(const Reader *reader, const uint8_t *at)
{
    while (at < reader->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static const uint8_t *after_number(const Reader *reader, const uint8_t *at)
{
    int is_negative = *at == '-';
    const uint8_t *digits = at + is_negative, *end = after_digits(reader, digits);
    if (end == digits || end - digits > 18 || (*digits == '0' && (end - digits > 1 || is_negative)))
        return NULL;
    if (end < reader->end && *end == '.') {
        const uint8_t *more = end + 1;
        end = after_digits(reader, more);
        if (reader->is_exact || end == more || end - more > 18)
            return NULL;
    }
    if (end < reader->end && (*end == 'e' || *end == 'E'))
        return NULL;
    return end;
}

static const uint8_t *after_word(const Reader *reader, const uint8_t *at, const char *word)
{
    size_t length = strlen(word);
    int is_there = (size_t)(reader->end - at) >= length && !memcmp(at, word, length);
    return is_there ? at + length : NULL;
}

static const uint8_t *after_value(Reader *reader, const uint8_t *at);

/* The name of a member, and behind its colon; NULL: it is not plain. */
static const uint8_t *after_name(const Reader *reader, const uint8_t *at, Span *name)
{
    if (at >= reader->end || *at != '"')
        return NULL;
    const uint8_t *end = after_text(reader, at);
    if (!end || end >= reader->end || *end != ':')
        return NULL;
    name->at = at + 1;
    name->end = end - 1;
    return end + 1;
}

static const uint8_t *after_object(Reader *reader, const uint8_t *at)
{
    Span names[NAMES_MOST];
    int count = 0;
    if (++at < reader->end && *at == '}')
        return at + 1;
    for (;;) {
        Span name;
        at = after_name(reader, at, &name);
        if (!at)
            return NULL;
        if (reader->is_exact) {
            if (count == NAMES_MOST)
                return NULL;
            for (int other = 0; other < count; other++)
                if (is_same(names[other], name))
                    return NULL;
            names[count++] = name;
        }
        at = after_value(reader, at);
        if (!at || at >= reader->end)
            return NULL;
        if (*at == '}')
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

static const uint8_t *after_list(Reader *reader, const uint8_t *at)
{
    if (++at < reader->end && *at == ']')
        return at + 1;
    for (;;) {
        at = after_value(reader, at);
        if (!at || at >= reader->end)
            return NULL;
        if (*at == ']')
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

/* Behind the value that begins here; NULL: it is not plain, or none. */
static const uint8_t *after_value(Reader *reader, const uint8_t *at)
{
    const uint8_t *found;
    if (at >= reader->end || reader->depth == DEPTH_MOST)
        return NULL;
    reader->depth++;
    switch (*at) {
    case '{': found = after_object(reader, at); break;
    case '[': found = after_list(reader, at); break;
    case '"': found = after_text(reader, at); break;
    case 't': found = after_word(reader, at, "true"); break;
    case 'f': found = after_word(reader, at, "false"); break;
    case 'n': found = after_word(reader, at, "null"); break;
    default: found = after_number(reader, at);
    }
    reader->depth--;
    return found;
}

/* What stands under a name: the last one counts. 0: the text is not plain. `at` is NULL if there is none. */
static int member(Reader *reader, const uint8_t *at, Span key, Span *found)
{
    found->at = NULL;
    if (++at < reader->end && *at == '}')
        return at + 1 == reader->end;
    for (;;) {
        Span name;
        const uint8_t *value = after_name(reader, at, &name);
        if (!value)
            return 0;
        reader->is_exact = is_same(name, key);
        at = after_value(reader, value);
        if (!at || at >= reader->end)
            return 0;
        if (reader->is_exact) {
            found->at = value;
            found->end = at;
        }
        if (*at == '}')
            return at + 1 == reader->end;
        if (*at++ != ',')
            return 0;
    }
}

/* The same for a place in a list, from 0; below it counted from the end. */
static int item(Reader *reader, const uint8_t *begun, int64_t place, Span *found)
{
    const uint8_t *at = begun;
    int64_t number = 0;
    found->at = NULL;
    if (++at < reader->end && *at == ']')
        return at + 1 == reader->end;
    for (;; number++) {
        const uint8_t *value = at;
        reader->is_exact = number == place;
        at = after_value(reader, value);
        if (!at || at >= reader->end)
            return 0;
        if (number == place) {
            found->at = value;
            found->end = at;
        }
        if (*at == ']')
            break;
        if (*at++ != ',')
            return 0;
    }
    if (at + 1 != reader->end)
        return 0;
    return place < 0 && place + number + 1 >= 0 ? item(reader, begun, place + number + 1, found) : 1;
}

static int read_span(sqlite3_value *value, Span *found)
{
    if (sqlite->value_type(value) != SQLITE_TEXT)
        return 0;
    found->at = sqlite->value_text(value);
    found->end = found->at + sqlite->value_bytes(value);
    return found->at && found->at < found->end && found->end - found->at <= BYTES_MOST;
}

/* A key as a place: 1; as a name alone: 0; -1: it is left to Python. */
static int read_key(sqlite3_value *value, Span *name, int64_t *place)
{
    if (sqlite->value_type(value) == SQLITE_INTEGER) {
        *place = sqlite->value_int64(value);
        return *place > -1000000000 && *place < 1000000000 ? 1 : -1;
    }
    if (!read_span(value, name))
        return -1;
    for (const uint8_t *at = name->at; at < name->end; at++)
        if ((*at < '0' || *at > '9') && *at != '-')
            return 0;
    return -1; /* a number as a text: it may mean a place, or a name */
}

/* One step; 0: not from here. */
static int stepped(sqlite3_value *data, sqlite3_value *key, int64_t less, Span *found)
{
    Span text, name;
    int64_t place = 0;
    if (!read_span(data, &text))
        return 0;
    Reader reader = {text.end, 0, 0};
    int kind = read_key(key, &name, &place);
    if (kind < 0)
        return 0;
    if (*text.at == '{')
        return kind == 0 ? member(&reader, text.at, name, found) : 0;
    if (*text.at == '[') {
        if (kind == 1)
            return item(&reader, text.at, place - less, found);
        found->at = NULL;
        return after_value(&reader, text.at) == text.end;
    }
    found->at = NULL; /* there is nothing below a value */
    return after_value(&reader, text.at) == text.end;
}

static void tell(sqlite3_context *context, Span found)
{
    if (!found.at)
        sqlite->result_null(context);
    else
        sqlite->result_text(context, (const char *)found.at, (int)(found.end - found.at), (Destroy)-1);
}

static void c_json_path(sqlite3_context *context, int count, sqlite3_value **values)
{
    Span found;
    if (any_null(context, count, values))
        return;
    if (stepped(values[0], values[1], 0, &found))
        tell(context, found);
    else
        ask_python(context, "c_json_path", count, values);
}

/* A list counts from 1 here. */
static void c_index(sqlite3_context *context, int count, sqlite3_value **values)
{
    Span found;
    if (any_null(context, count, values))
        return;
    int is_below =
        sqlite->value_type(values[1]) == SQLITE_INTEGER && sqlite->value_int64(values[1]) < 1;
    if (!is_below && stepped(values[0], values[1], 1, &found))
        tell(context, found);
    else
        ask_python(context, "c_index", count, values);
}

static void c_json_shown(sqlite3_context *context, int count, sqlite3_value **values)
{
    Span text;
    if (any_null(context, count, values))
        return;
    Reader reader = {NULL, 0, 0};
    int is_taken = read_span(values[0], &text);
    if (is_taken) {
        reader.end = text.end;
        is_taken = after_value(&reader, text.at) == text.end;
    }
    if (!is_taken) {
        ask_python(context, "c_json_shown", count, values);
        return;
    }
    if (*text.at == 'n')
        text.at = NULL;
    else if (*text.at == '"') {
        text.at++;
        text.end--;
    }
    tell(context, text);
}

/* --- arrays: JSON of physical values, counted from 1 ------------------------------------------ */

static void pick(sqlite3_context *context, const char *name, sqlite3_value **values, int is_text)
{
    Span found;
    int64_t number = 0;
    if (any_null(context, 2, values))
        return;
    int is_taken = sqlite->value_type(values[1]) == SQLITE_INTEGER &&
                   sqlite->value_int64(values[1]) > 0 && stepped(values[0], values[1], 1, &found);
    if (is_taken && found.at && *found.at == 'n')
        found.at = NULL;
    if (is_taken && !found.at)
        sqlite->result_null(context);
    else if (is_taken && is_text && *found.at == '"') {
        Span inside = {found.at + 1, found.end - 1};
        tell(context, inside);
    } else if (is_taken && !is_text && whole_number(found.at, found.end, &number))
        sqlite->result_int64(context, number);
    else
        ask_python(context, name, 2, values);
}

static void s_item(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    pick(context, "s_item", values, 1);
}

static void i_item(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    pick(context, "i_item", values, 0);
}

const Known JSONS[] = {{"c_json_path", 2, c_json_path}, {"c_index", 2, c_index},
                       {"c_json_shown", 1, c_json_shown}, {"s_item", 2, s_item},
                       {"i_item", 2, i_item}, {NULL, 0, NULL}};
