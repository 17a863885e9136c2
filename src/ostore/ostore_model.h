/* ostore_model.h — what a store should hold, kept plainly in memory, and the comparison with one.
 * Not here: anything a service links.
 * Threads:  a test's.
 * Memory:   model_free() frees all; keys and versions are copied.
 * Errors:   a difference ends the test with what differs. */
#pragma once
#include "base/vec.h"
#include "ostore/ostore_world.h"

struct mpart {
    uint32_t number, seed, size;
    uint64_t lsn;
};
struct mversion { /* newest first in its key */
    uint8_t id[16];
    bool is_marker;
    uint32_t seed, size, tag; /* tag 0: none */
    uint64_t lsn, time_ns;
    uint8_t upload[16];
    VEC(struct mpart) parts; /* n > 0: of an upload */
};
struct mkey {
    char p[40];
    size_t n;
    VEC(struct mversion) v;
};
struct mupload {
    struct str key; /* of the test's table */
    uint8_t id[16];
    uint32_t tag;
    VEC(struct mpart) parts;
};
struct mbucket {
    char name[32];
    enum ostore_versioning versioning;
    VEC(struct mkey) keys; /* in order */
    VEC(struct mupload) uploads;
};

struct str mkey_str(const struct mkey *k);
struct mkey *mbucket_key(struct mbucket *b, struct str key, bool is_made);
struct mversion *mkey_latest(struct mkey *k); /* NULL: none */
void mversion_free(struct mversion *v);
void mkey_remove(struct mkey *k, size_t idx);
/* As a put or a marker does it: a null version goes away for a new one. Takes 'v'. */
void mkey_push(struct mkey *k, struct mversion v);
void mbucket_free(struct mbucket *b);

const char *model_etag(uint32_t seed, char buf[33]);
/* The bytes of a version, in the world's arena. */
struct str mversion_bytes(struct world *w, const struct mversion *v);

/* Everything: each version and its bytes, lists with many markers, uploads and parts, counters. */
void model_compare(struct world *w, struct mbucket *b, uint32_t seed);
uint32_t model_rand(uint32_t *state, uint32_t n);
