/* Continuation tokens: whatever a client sends is refused, or is the very token that we make for
 * the key it leads to. */
#include "predastore/page.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct str token = str_n((const char *)data + 1, size - 1), after = STR_NONE;
    if (page_token_parse(a, data[0], token, &after) == 0 &&
        !str_eq(page_token(a, data[0], after), token)) {
        abort();
    }
    /* The other way: any key survives. */
    struct str made = page_token(a, data[0], token), back = STR_NONE;
    if (token.n <= REST_MAX_KEY &&
        (page_token_parse(a, data[0], made, &back) < 0 || !str_eq(back, token))) {
        abort();
    }
    return 0;
}
