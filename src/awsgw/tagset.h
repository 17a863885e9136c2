/* tagset.h — tags of a request and of the store.
 * Not here: CreateTags and friends (ops_tag.c), filters (aws/filter.h).
 * Threads:  no state.
 * Memory:   in the arena.
 * Errors:   "InvalidParameterValue", "TagLimitExceeded", as EC2 answers them. */
#pragma once
#include "aws/api/ec2.h"
#include "awsgw/store.h"
#include "awsgw/txn.h"
#include "model/tag.h"

#define TAGS_MAX      50u
#define TAG_KEY_MAX   128u /* code points */
#define TAG_VALUE_MAX 256u

/* Checks one key and value: lengths, "aws:" reserved. */
MUST_CHECK int tag_check(struct str key, struct str value, struct err *err);

/* The tags that TagSpecifications give to 'resource_type', sorted by key; a duplicate key is an
 * error. A specification for a type that is not in 'allowed' (NULL-terminated) is refused. */
MUST_CHECK int tags_from_spec(struct arena *a, const struct ec2_tag_specification_list *specs,
                              const char *resource_type, const char *const *allowed,
                              struct tag_list *ret, struct err *err);
/* Adds the record when there is a tag. */
void tags_create(struct txn *t, struct str account, struct str id, const char *resource_type,
                 struct tag_list tags);
/* Tags of a resource; empty when it has none. */
struct tag_list tags_of(struct gw *gw, struct arena *a, struct str account, struct str id);
/* The tags of a request and those that the caller's 'id' has: the request's win. */
MUST_CHECK int tags_merge(struct aws_call *call, struct tag_list asked, struct str id,
                          struct tag_list *ret, struct err *err);
void tags_out(struct arena *a, struct tag_list tags, struct ec2_tag_list *out);
/* Value of a key, STR_NONE when absent. */
struct str tags_get(struct tag_list tags, struct str key);
