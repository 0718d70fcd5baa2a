/* Texts of values, as COPY has them, to packed values. */

#ifndef CAIRN_FIELDS_H
#define CAIRN_FIELDS_H

#include <stdint.h>

/* How a column's values are written and stored; numbers that `native/rows.py` knows too. */
enum { INTEGER = 0, UNSIGNED = 1, DOUBLE = 2, TEXT = 3, BOOLEAN = 4, UUID = 5, ZONED = 6, TIME = 7, DATE = 8 };

typedef struct {
    int32_t kind;
    int32_t required;  /* no NULL */
    int32_t longest;   /* characters of a text, bytes of an INTEGER; 0: any */
} Column;

typedef struct {
    const uint8_t *text; /* NULL stands for NULL */
    uint32_t length;
} Field;

/* The packed value behind `to`, or NULL: not so plain that it could be vouched for here. */
uint8_t *pack_field(uint8_t *to, const Column *column, Field field);
/* The same as it is hashed. */
uint8_t *key_field(uint8_t *to, const Column *column, Field field);

#endif
