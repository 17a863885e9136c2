/* arena.h — memory of one request or one record: many small allocations, one free.
 * Not here: body bytes, objects that outlive the request.
 * Threads:  an arena belongs to one thread at a time.
 * Memory:   arena_new() gives; everything allocated lives until arena_free() or arena_reset().
 *           Blocks are zeroed and aligned for any type.
 * Errors:   arena_alloc() returns NULL past the limit: whoever lets a user decide the size
 *           checks it. The x-forms abort instead and are for sizes the program chooses. */
#pragma once
#include "base/macro.h"
#include "base/str.h"

struct arena;

#define ARENA_REQUEST_MAX (1u << 20)

/* 'max_size' bounds the sum of all allocations, in bytes. */
struct arena *arena_new(size_t max_size);
void arena_free(struct arena *a); /* NULL is fine; deferred calls run in reverse order */
DEFINE_CLEANUP(struct arena *, arena_free);

/* Runs deferred calls, forgets all allocations, keeps the first chunk. */
void arena_reset(struct arena *a);

void *arena_alloc(struct arena *a, size_t size); /* NULL past the limit */
void *arena_array(struct arena *a, size_t n,
                  size_t el_size); /* NULL past the limit or on overflow */
void *arena_xalloc(struct arena *a, size_t size) __attribute__((returns_nonnull));

#define arena_new_of(a, type) ((type *)arena_xalloc((a), sizeof(type)))

/* Copies with a NUL after the last byte. p == NULL stays NULL; STR_NONE past the limit. */
struct str arena_str_dup(struct arena *a, struct str s);
/* A NUL-terminated copy; aborts past the limit. */
const char *arena_cstr(struct arena *a, struct str s) __attribute__((returns_nonnull));
/* Formats into the arena; STR_NONE past the limit. */
struct str arena_fmt(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Calls fn(p) when the arena is reset or freed. Returns 0 or -ENOMEM (fn was not registered).
 */
MUST_CHECK int arena_defer(struct arena *a, void (*fn)(void *), void *p);

size_t arena_used(const struct arena *a);
