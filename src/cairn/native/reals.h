/* Doubles as PostgreSQL writes them: the fewest digits that read back the same. */

#ifndef CAIRN_REALS_H
#define CAIRN_REALS_H

#include <stdint.h>

#define REAL_MOST 32 /* bytes that one may need */

/* The place behind the digits; NULL: its size is one that is written with an exponent, or nearly. */
uint8_t *put_real(uint8_t *to, double value);
uint8_t *put_digits(uint8_t *to, uint64_t value, int least);

#endif
