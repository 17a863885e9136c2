/* arn.h — Amazon Resource Names: "arn:partition:service:region:account:resource".
 * Not here: matching against policies (policy.h).
 * Threads:  no state.
 * Memory:   parsed parts borrow from the text; made names live in the arena.
 * Errors:   arn_parse() answers -EINVAL; makers abort past the arena's limit. */
#pragma once
#include "base/arena.h"
#include "base/macro.h"

struct arn {
    struct str partition, service, region, account, resource;
};

MUST_CHECK int arn_parse(struct str s, struct arn *ret);
struct str arn_make(struct arena *a, struct str service, struct str region, struct str account,
                    struct str resource);
/* "arn:aws:ec2:<region>:<account>:<kind>/<id>" */
struct str arn_ec2(struct arena *a, struct str region, struct str account, const char *kind,
                   struct str id);
