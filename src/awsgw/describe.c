#include "awsgw/describe.h"

#include "awsgw/tagset.h"
#include "model/keys.h"

#include <errno.h>

void describe_tags(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    const struct view_entry *e = obj;
    struct key_parts k;
    if (key_parse(e->key, &k) < 0) {
        return;
    }
    struct tag_list tags = tags_of(gw_of(call), call->arena, call->account, k.id);
    for (size_t i = 0; i < tags.n; i++) {
        aws_filter_tag(p, tags.v[i].key, tags.v[i].value);
    }
}

static void remove_invisible(struct aws_call *call, const struct describe_spec *spec,
                             struct entries *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (!spec->is_visible || spec->is_visible(call, e->v[i])) {
            e->v[n++] = e->v[i];
        }
    }
    e->n = n;
}

int describe_select(struct aws_call *call, const struct describe_spec *spec,
                    const struct describe_in *in, struct entries all, struct entries *ret,
                    struct str *ret_token, struct err *err)
{
    const struct aws_filter_spec fs = {.names = spec->filters,
                                       .n_names = spec->n_filters,
                                       .has_tags = true,
                                       .values = spec->values,
                                       .tags = describe_tags};
    struct aws_filter *f = NULL;
    struct aws_page page = {.max = SIZE_MAX, .after = STR_NONE};
    int r = aws_filter_open(call->arena, &fs, in->filters, &f, err);
    if (r == 0 && spec->page_max > 0) {
        const struct aws_page_spec ps = {.min = spec->page_min,
                                         .max = spec->page_max,
                                         .dflt = spec->page_dflt,
                                         .ids_param = spec->ids_param,
                                         .has_ids = in->ids && in->ids->n > 0};
        r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err);
    }
    if (r < 0) {
        return r;
    }
    *ret_token = STR_NONE;
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        const struct view_entry *e = all.v[i];
        if ((str_is_set(page.after) && str_cmp(e->key, page.after) <= 0) ||
            !aws_filter_match(f, call, e)) {
            continue;
        }
        if (n == page.max) {
            *ret_token = aws_page_token(call, all.v[n - 1]->key);
            break;
        }
        all.v[n++] = e;
    }
    all.n = n;
    *ret = all;
    return 0;
}

int describe_run(struct aws_call *call, const struct describe_spec *spec,
                 const struct describe_in *in, struct entries *ret, struct str *ret_token,
                 struct err *err)
{
    struct entries all = {0};
    if (in->ids && in->ids->n > 0) {
        int r = find_many(call, spec->kind, in->ids, &all, err);
        if (r < 0) {
            return r;
        }
    } else {
        all = store_list(gw_of(call), call->arena, spec->rec_kind, call->account);
    }
    remove_invisible(call, spec, &all);
    return describe_select(call, spec, in, all, ret, ret_token, err);
}
