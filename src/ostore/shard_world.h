/* shard_world.h — drives in folders, and a door to them that stalls and fails; for the tests
 *                 of shards.
 * Not here: power cuts (base/fault_sim.h).
 * Threads:  settings of the door are atomic.
 * Memory:   world_new() gives, world_free() takes and removes the folders.
 * Errors:   cmocka's assertions. */
#pragma once
#include "base/fault_sim.h"
#include "ostore/heal.h"
#include "ostore/shard_int.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define WORLD_DRIVES_MAX 16

struct door {
    struct fault_fs fs;
    atomic_uint slow, broken; /* bits of drives */
    atomic_uint ops;          /* which calls are slow or broken: FAULT_BIT() */
    atomic_uint slow_ms;
    atomic_int code;       /* of broken ones */
    atomic_uint n_to_pass; /* broken calls that still pass */
    atomic_uint n_calls;   /* of those in 'ops' on drives that are slow or broken */
};

struct world {
    char top[64];
    char path[WORLD_DRIVES_MAX][96];
    const char *paths[WORLD_DRIVES_MAX];
    unsigned n;
    struct door door;
    struct drives *drives;
    struct shards *shards;
    struct arena *arena;
    uint64_t stall_ns, slow_ns;
    atomic_uint bad;             /* shards that on_bad() was told of */
    _Atomic(struct heal *) heal; /* is told too */
};

/* fs NULL: the system's, with no door. Drives are slow after ten seconds only, however busy
 * the machine: world_hurry() makes it what it is in a service. */
struct world *world_new(unsigned n, struct fault_fs *fs, uint64_t stall_ns);
struct world *world_new_door(unsigned n, uint64_t stall_ns);
void world_free(struct world *w);
void world_hurry(struct world *w, struct fault_fs *fs); /* opens again */
void world_down(struct world *w);                       /* closes shards and drives */
void world_up(struct world *w, struct fault_fs *fs);

void world_fill(uint8_t *p, size_t n, uint64_t seed);
/* Writes a body of 'n' bytes of world_fill(seed) in pieces of 'step' bytes (0: all at once);
 * not sealed unless 'keys'. *c is ready for reading. */
void world_put(struct world *w, unsigned k, unsigned m, uint32_t unit, size_t n, uint64_t seed,
               size_t step, struct orec_body *ret, struct body_codec *c);
/* Reads [off, off + n) and compares; 0, or the negative answer. Fails when bytes are wrong. */
int world_read(struct world *w, const struct orec_body *b, struct body_codec *c,
               const uint8_t *want, size_t size, size_t off, size_t n);
char *world_shard_path(struct world *w, const struct orec_body *b, unsigned shard,
                       char buf[192]);
off_t world_file_size(const char *path);
void world_flip(const char *path, off_t off, unsigned bit);
unsigned world_n_files(struct world *w); /* below data/ of all drives */
