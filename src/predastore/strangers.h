/* strangers.h — how often the store of identities may be asked for keys that nobody knows: one
 *               that was just made is asked for once, somebody who guesses gets nowhere.
 * Not here: asking (ask.c).
 * Threads:  any.
 * Memory:   fixed.
 * Errors:   none. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

enum {
    STRANGERS_PER_ADDRESS = 20, /* questions a second, of one address */
    STRANGERS_BURST = 60,       /* saved up, of one address */
    STRANGERS_ALL = 400,        /* of all together */
    STRANGERS_AT_ONCE = 8,
};

struct strangers;
struct strangers *strangers_new(void) __attribute__((returns_nonnull));
void strangers_free(struct strangers *s); /* NULL is fine */

enum strangers_may {
    STRANGERS_ASK,     /* and say strangers_asked() afterwards */
    STRANGERS_UNKNOWN, /* it was asked for lately: there is no such key */
    STRANGERS_LATER,
};
enum strangers_may strangers_may_ask(struct strangers *s, struct str key_id, struct str address,
                                     uint64_t now_ns);
/* is_there: the store knows the key, or could not say. */
void strangers_asked(struct strangers *s, struct str key_id, bool is_there, uint64_t now_ns);
