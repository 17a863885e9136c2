/* share.h — one amount that many take from, so that nobody can take it all: who holds something
 * may hold twice what is left for others, no more. Alone that is two thirds; of many, each gets
 * nearly the same, and a newcomer always finds something.
 * Not here: waiting for one's turn.
 * Threads:  any.
 * Memory:   shares_new() gives; owners live as long as something of theirs is held.
 * Errors:   -EAGAIN: not now. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

struct shares;
struct share_owner;

struct shares *shares_new(uint64_t total) __attribute__((returns_nonnull));
void shares_free(struct shares *s); /* NULL is fine; nothing may be held any more */

/* What one request holds, for up to two owners at once (an account and an address). Zeroed at
 * first. */
#define SHARE_OWNERS 2
struct share_hold {
    struct share_owner *owners[SHARE_OWNERS];
    uint64_t n;
};
/* Names the owners (STR_NONE: none) of a hold that is empty, and takes 'n' for them. */
MUST_CHECK int share_take(struct shares *s, struct share_hold *h,
                          const struct str owners[SHARE_OWNERS], uint64_t n);
/* 'n' more for the same owners. */
MUST_CHECK int share_more(struct shares *s, struct share_hold *h, uint64_t n);
void share_give(struct shares *s, struct share_hold *h); /* all of it; an empty one is fine */
uint64_t shares_held(struct shares *s);
