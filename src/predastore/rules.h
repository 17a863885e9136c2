/* rules.h — lifecycle and CORS rules of buckets, parsed once for all requests that ask for them.
 * Not here: what they mean (lifecycle.h, cors.c), writing them (conf.h).
 * Threads:  any. Somebody's first look parses on his thread, what a configuration's limit allows.
 * Memory:   what it gives lives until the caller's arena is reset; beside what requests hold, at
 *           most RULES_BYTES in RULES_MAX entries, those used last.
 * Errors:   "InternalError" when stored bytes cannot be read. */
#pragma once
#include "aws/s3_cors.h"
#include "aws/s3_lifecycle.h"
#include "predastore/conf.h"

enum { RULES_MAX = 1024, RULES_BYTES = 64 << 20 };

struct rules;
struct rules *rules_new(void) __attribute__((returns_nonnull));
void rules_free(struct rules *m); /* NULL is fine; no arena may hold anything any more */

/* 1: there are rules, 0: none. */
MUST_CHECK int rules_life(struct rules *m, const struct obucket *b, struct arena *a,
                          const struct s3_life **ret, struct err *err);
MUST_CHECK int rules_cors(struct rules *m, const struct obucket *b, struct arena *a,
                          const struct s3_cors **ret, struct err *err);

struct rules_stats {
    uint64_t n_parsed;
    size_t n, bytes;
};
void rules_stats(struct rules *m, struct rules_stats *ret);

/* From the model's structures, without a cache. Borrows from 'in'. (cors.c) */
MUST_CHECK int cors_convert(struct arena *a, const struct s3_cors_configuration *in,
                            struct s3_cors *ret, struct err *err);
