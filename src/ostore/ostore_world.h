/* ostore_world.h — a store in a folder of its own, and short words for what tests do with it.
 * Not here: anything a service links.
 * Threads:  a test's.
 * Memory:   world_init() + world_done().
 * Errors:   a test that cannot go on is ended. */
#pragma once
#include "base/test.h"
#include "ostore/ostore.h"
#include "testkit/tmpdir.h"

struct world {
    struct tmpdir dir;
    char paths[DRIVES_MAX][128];
    const char *drives[DRIVES_MAX];
    struct ostore_opts o;
    struct ostore *s;
    struct arena *a;
    struct err err;
};
void world_init(struct world *w, unsigned k, unsigned m); /* not opened yet */
/* The same over folders that are there. */
void world_paths(struct world *w, const char *dir, unsigned k, unsigned m);
void world_open(struct world *w);
void world_close(struct world *w);
void world_again(struct world *w, bool is_index_discarded);
void world_done(struct world *w);

const struct obucket *world_bucket(struct world *w,
                                   const char *name); /* made if it is not there */
/* A body of 'size' bytes that begin with 'seed': the same for the same two. */
struct str world_bytes(struct world *w, size_t size, uint32_t seed);
/* All return what the store did. */
int world_put(struct world *w, const struct obucket *b, struct str key, struct str body,
              struct ochange *io);
int world_delete(struct world *w, const struct obucket *b, struct str key,
                 const uint8_t *version, struct ochange *io);
/* The body of a version, whole; in the world's arena. */
int world_read(struct world *w, const struct obucket *b, struct str key, const uint8_t *version,
               struct str *ret, struct oversion *ret_version);
int world_finish(struct world *w, struct oput *p);         /* and waits */
struct oput *world_body(struct world *w, struct str body); /* finished */

#define assert_ok(w, rc)                                                           \
    do {                                                                           \
        int rc_ = (rc);                                                            \
        if (rc_ < 0) {                                                             \
            fail_msg("%s: %d %s %s", #rc, rc_, (w)->err.name ? (w)->err.name : "", \
                     (w)->err.msg);                                                \
        }                                                                          \
    } while (0)

void world_assert_body(struct world *w, const struct obucket *b, struct str key,
                       const uint8_t *version, struct str want);
int world_files(const struct world *w); /* files of bodies on all drives */
/* Removal is in the background: at most five seconds. */
void world_wait_for_files(const struct world *w, int n);
