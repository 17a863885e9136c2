/* describe.h — the common middle of every Describe operation: ids or all, filters, pages.
 * Not here: what a kind's filters and answers are (ops_*.c).
 * Threads:  no state.
 * Memory:   in the arena of the call.
 * Errors:   of ids, filters and paging, as EC2 answers them. */
#pragma once
#include "aws/filter.h"
#include "aws/page.h"
#include "awsgw/find.h"

struct describe_spec {
    enum aws_id_kind kind;
    const char *rec_kind; /* "volume": spec/volume/... */
    /* Filter call-backs get ctx = the struct aws_call, obj = the const struct view_entry. */
    const char *const *filters;
    size_t n_filters;
    void (*values)(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p);
    /* how EC2 calls the ids in "cannot be used with maxResults"; NULL = they may come
     * together */
    const char *ids_param;
    int64_t page_min, page_max, page_dflt; /* page_max 0 = the operation has no pages */
    bool (*is_visible)(struct aws_call *call, const struct view_entry *e); /* NULL = all */
};

struct describe_in {
    const struct aws_str_list *ids; /* NULL = the operation takes none */
    const struct ec2_filter_list *filters;
    struct opt_i64 max_results;
    struct str next_token;
};

/* What to show, in order; *ret_token is STR_NONE on the last page. */
MUST_CHECK int describe_run(struct aws_call *call, const struct describe_spec *spec,
                            const struct describe_in *in, struct entries *ret,
                            struct str *ret_token, struct err *err);

/* For operations that join or make their objects themselves: filters 'all' and cuts the page. */
MUST_CHECK int describe_select(struct aws_call *call, const struct describe_spec *spec,
                               const struct describe_in *in, struct entries all,
                               struct entries *ret, struct str *ret_token, struct err *err);

/* The tags of the resource whose record 'obj' (an entry) is: fits aws_filter_spec.tags. */
void describe_tags(void *ctx, const void *obj, struct aws_filter_probe *p);
