/* filter.h — the Filter.N parameters of EC2's Describe operations: values OR, filters AND, '*'
 * and '?'.
 * Not here: what an object's values are (the handler's call-back).
 * Threads:  a struct aws_filter is constant after aws_filter_open().
 * Memory:   lives in the arena; borrows the filters of the input.
 * Errors:   "InvalidParameterValue" (The filter 'x' is invalid), "FilterLimitExceeded",
 *           "MissingParameter". */
#pragma once
#include "aws/api/ec2.h"
#include "base/err.h"

#define AWS_FILTER_MAX_VALUES 200u

struct aws_filter;
struct aws_filter_probe; /* one filter against one object */

/* A value that the object has for the filter asked about; call once per value of a list, not at
 * all when it has none. */
void aws_filter_add(struct aws_filter_probe *p, struct str value);
void aws_filter_addc(struct aws_filter_probe *p, const char *value);
void aws_filter_add_bool(struct aws_filter_probe *p, bool value);
void aws_filter_add_i64(struct aws_filter_probe *p, int64_t value);
void aws_filter_add_time(struct aws_filter_probe *p,
                         uint64_t wall_ns); /* "2026-11-30T14:49:10.000Z" */

struct aws_filter_spec {
    const char *const *names; /* as users spell them: "instance-state-name" */
    size_t n_names;
    bool has_tags; /* accept tag:KEY, tag-key and tag-value */
    /* Adds the values of 'obj' for filter number 'name_idx' of names. */
    void (*values)(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p);
    /* With has_tags: calls aws_filter_tag() for every tag of 'obj'. */
    void (*tags)(void *ctx, const void *obj, struct aws_filter_probe *p);
};
void aws_filter_tag(struct aws_filter_probe *p, struct str key, struct str value);

MUST_CHECK int aws_filter_open(struct arena *a, const struct aws_filter_spec *spec,
                               const struct ec2_filter_list *filters, struct aws_filter **ret,
                               struct err *err);
bool aws_filter_match(const struct aws_filter *f, void *ctx, const void *obj);
/* True when no filter was given: everything matches. */
bool aws_filter_is_empty(const struct aws_filter *f);
/* The values given for one filter name, or NULL: for handlers that narrow their search by it.
 */
const struct aws_str_list *aws_filter_values(const struct aws_filter *f, const char *name);
