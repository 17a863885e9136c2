/* ostore_pin.h — what readers hold: files and segments go only when nobody reads them any more.
 * Not here: what is dead (index_tx.h), how it is removed (the call-back).
 * Threads:  any. The lock is a leaf and never held during I/O; removals run on one thread of
 *           their own.
 * Memory:   pins_open() gives, pins_close() takes, after all readers; what waits is removed then.
 * Errors:   none: what could not be removed is found by the sweep of orphans.
 *
 * A reader enters an epoch before it looks into the index, and leaves it when it has pinned what it
 * found (or gives up). Something that died is removed when all epochs that were open then are
 * left, and no pin is on it. So a slow reader holds back its own bytes, nothing else. */
#pragma once
#include "ostore/index_tx.h"

struct pins;
struct pin_victim {
    bool is_segment;
    uint64_t segment;
    struct orec_body body; /* of files */
};
typedef void (*pins_fn)(void *ctx, const struct pin_victim *v);

struct pins *pins_open(pins_fn remove, void *ctx) __attribute__((returns_nonnull));
void pins_close(struct pins *p); /* NULL is fine */

uint64_t pins_enter(struct pins *p);
void pins_leave(struct pins *p, uint64_t epoch);

/* 'id' of 16 bytes: a body's, an upload's. */
void pins_hold(struct pins *p, const uint8_t id[16]);
void pins_drop(struct pins *p, const uint8_t id[16]);
void pin_of_segment(uint64_t segment, uint8_t ret[16]);

void pins_bury(struct pins *p, const uint8_t id[16], const struct pin_victim *v);
/* Waits until what was buried so far is removed, or a second went by because readers hold it. */
void pins_settle(struct pins *p);
/* Whether the files of this body wait for their removal. */
bool pins_is_buried(struct pins *p, const uint8_t body[16]);
