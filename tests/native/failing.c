/* Memory that runs out when it is told to: only in the build of `sanitized.py`. */

#include <stddef.h>

#undef malloc
#undef calloc
#undef realloc
#include <stdlib.h>

static __thread long left = -1; /* calls until one fails; below zero: none does */

__attribute__((visibility("default"))) void fail_after(long calls)
{
    left = calls;
}

static int is_out(void)
{
    return left >= 0 && left-- == 0;
}

void *cairn_malloc(size_t size)
{
    return is_out() ? NULL : malloc(size);
}

void *cairn_calloc(size_t count, size_t size)
{
    return is_out() ? NULL : calloc(count, size);
}

void *cairn_realloc(void *memory, size_t size)
{
    return is_out() ? NULL : realloc(memory, size);
}
