/* imds_token.h — tokens of the metadata service: made and checked with a key, kept nowhere.
 * Not here: when one is needed (imds.c).
 * A token is base64 of: version, end of life (s, wall clock), 8 random bytes, HMAC-SHA-256 over
 * those, the VPC and the instance.
 * Threads:  no state.
 * Memory:   the token lives in the arena.
 * Errors:   a token that is not right is simply not valid. */
#pragma once
#include "base/arena.h"
#include <stdint.h>

#define IMDS_TTL_MAX_S 21600u

struct str imds_token_make(struct arena *a, struct str key, struct str vpc_id,
                           struct str instance_id, uint64_t now_ns, uint64_t ttl_s);
/* Seconds that it still lives, 0 = not valid. */
uint64_t imds_token_check(struct str token, struct str key, struct str vpc_id,
                          struct str instance_id, uint64_t now_ns);
