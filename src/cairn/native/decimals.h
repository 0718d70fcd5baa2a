/* A DECIMAL as a whole number and a scale, and its bytes (`model/types/decimals.py` says what they
   are). Only numbers of at most 38 digits, which is all that a column takes: wider ones, which come up
   in the middle of an expression, are left to Python. */

#ifndef CAIRN_DECIMALS_H
#define CAIRN_DECIMALS_H

#include <stddef.h>
#include <stdint.h>

#define MOST_DIGITS 38
#define MOST_SCALE 200
#define ENCODED_MOST 160 /* bytes of a sum: 135 digits, and what stands around them */

typedef unsigned __int128 Wide;

typedef struct {
    Wide digits; /* below 10^38 where it was read; a result may have one digit more */
    int scale;   /* of them behind the point, from 0 on */
    int is_negative;
} Number;

Wide ten_to(int exponent); /* 0 to 38 */

/* Digits of a number, the first one first and no zero; how many there are. */
int digits_of(Wide number, uint8_t *to);

/* 1: it is one of those above; 0: ask Python. */
int decimal_read(const uint8_t *data, size_t length, Number *found);

/* The bytes of `digits` * 10^-scale, with `zeros` behind the last digit after the point if `shown`;
   how many bytes. */
size_t decimal_put(const uint8_t *digits, int count, int scale, int is_negative, int zeros, uint8_t *to);
size_t decimal_write(const Number *number, int is_shown, uint8_t *to);

#endif
