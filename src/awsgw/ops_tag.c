/* CreateTags, DeleteTags, DescribeTags: on any resource of the account, in the one tag store. */
#include "awsgw/ops.h"

#include "awsgw/describe.h"
#include "awsgw/launch.h"
#include "awsgw/tagset.h"
#include "model/keys.h"

#include <errno.h>

#define RESOURCES_MAX 60u /* in one request: one transaction of two operations each */

/* A key pair is stored under its name, a rule inside its group: both are looked for by id. */
static const struct view_entry *find_key_pair(struct aws_call *call, struct str id)
{
    struct entries all = store_list(gw_of(call), call->arena, "keypair", call->account);
    for (size_t i = 0; i < all.n; i++) {
        if (str_eq(REC(keypair, all.v[i])->id, id)) {
            return all.v[i];
        }
    }
    return NULL;
}

static const struct view_entry *group_of_rule(struct aws_call *call, struct str id)
{
    struct entries all = store_list(gw_of(call), call->arena, "sg", call->account);
    for (size_t i = 0; i < all.n; i++) {
        const struct sg *g = REC(sg, all.v[i]);
        for (size_t k = 0; k < g->rules.n; k++) {
            if (str_eq(g->rules.v[k].id, id)) {
                return all.v[i];
            }
        }
    }
    return NULL;
}

/* The resource that 'id' names must be the caller's; *ret is its record, to make sure that it
 * stays. */
static int find_resource(struct aws_call *call, struct str id, enum aws_id_kind *ret_kind,
                         const struct view_entry **ret, struct err *err)
{
    *ret = NULL;
    if (aws_id_kind_of(id, ret_kind) < 0) {
        return fail(err, -EINVAL, "InvalidID", "The ID '%.*s' is not valid", STR_ARG(id));
    }
    int r = aws_id_check(*ret_kind, id, err);
    if (r < 0) {
        return r;
    }
    switch (*ret_kind) {
    case AWS_ID_KEY_PAIR:
        *ret = find_key_pair(call, id);
        return *ret ? 0
                    : fail(err, -ENOENT, "InvalidKeyPair.NotFound",
                           "The key pair '%.*s' does not exist", STR_ARG(id));
    case AWS_ID_SECURITY_GROUP_RULE:
        *ret = group_of_rule(call, id);
        return *ret ? 0 : aws_id_not_found(*ret_kind, &id, 1, err);
    case AWS_ID_IMAGE:
        *ret = image_find(call, id, err);
        if (*ret && !str_eq(REC(image, *ret)->account, call->account)) {
            return aws_id_not_found(AWS_ID_IMAGE, &id, 1, err);
        }
        return *ret ? 0 : err->code;
    default: *ret = find_one(call, *ret_kind, id, err); return *ret ? 0 : err->code;
    }
}

struct tag_change {
    const struct ec2_tag_list *tags;
    bool is_delete;
};

/* Applies one tag to a sorted list with room for one more. */
static int apply_one(struct tag_list *l, const struct ec2_tag *t, bool is_delete,
                     struct err *err)
{
    size_t i = 0;
    while (i < l->n && str_cmp(l->v[i].key, t->key) < 0) {
        i++;
    }
    bool is_there = i < l->n && str_eq(l->v[i].key, t->key);
    if (is_delete) {
        /* A value given must match; none given removes whatever the value is (EC2 API
         * reference, DeleteTags). */
        if (is_there && (!str_is_set(t->value) || str_eq(l->v[i].value, t->value))) {
            memmove(&l->v[i], &l->v[i + 1], (l->n - i - 1) * sizeof(*l->v));
            l->n--;
        }
        return 0;
    }
    struct str value = t->value.p ? t->value : STR("");
    if (is_there) {
        l->v[i].value = value;
        return 0;
    }
    if (l->n == TAGS_MAX) {
        return fail(err, -E2BIG, "TagLimitExceeded",
                    "The maximum number of Tags for a resource has been reached.");
    }
    memmove(&l->v[i + 1], &l->v[i], (l->n - i) * sizeof(*l->v));
    l->v[i] = (struct tag){.key = t->key, .value = value};
    l->n++;
    return 0;
}

static int change_resource(struct aws_call *call, struct txn *t, struct str id,
                           const struct tag_change *c, struct err *err)
{
    enum aws_id_kind kind;
    const struct view_entry *owner = NULL;
    int r = find_resource(call, id, &kind, &owner, err);
    if (r < 0) {
        return r;
    }
    const struct view_entry *e =
        store_spec(gw_of(call), call->arena, "tags", call->account, id);
    const struct tags *old = REC(tags, e);
    struct tags rec = {
        .id = id, .account = call->account, .resource_type = str_c(aws_id_resource_type(kind))};
    rec.tags.v = arena_xalloc(call->arena, (TAGS_MAX + 1) * sizeof(struct tag));
    if (old) {
        rec.head = old->head;
        rec.tags.n = MIN(old->tags.n, (size_t)TAGS_MAX);
        memcpy(rec.tags.v, old->tags.v, rec.tags.n * sizeof(struct tag));
    }
    if (c->is_delete && c->tags->n == 0) {
        rec.tags.n = 0; /* no tags named: all go */
    }
    for (size_t i = 0; i < c->tags->n; i++) {
        if ((r = apply_one(&rec.tags, &c->tags->v[i], c->is_delete, err)) < 0) {
            return r;
        }
    }
    txn_expect(t, owner->key, owner->mod_rev); /* the resource must not go meanwhile */
    if (rec.tags.n == 0) {
        txn_delete(t, e);
    } else {
        txn_set(t, e, key_spec(call->arena, "tags", call->account, id), &tags_desc, &rec);
    }
    return 0;
}

static int change_tags(struct aws_call *call, const struct aws_str_list *resources,
                       const struct tag_change *c, struct err *err)
{
    struct txn *t = txn_open(call);
    int r = 0;
    if (resources->n > RESOURCES_MAX) {
        return fail(err, -E2BIG, "InvalidParameterValue",
                    "At most %u resources can be tagged by one request.", RESOURCES_MAX);
    }
    for (size_t i = 0; i < c->tags->n; i++) {
        struct str value = c->tags->v[i].value.p ? c->tags->v[i].value : STR("");
        if ((r = tag_check(c->tags->v[i].key, value, err)) < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < resources->n; i++) {
        bool is_again = false;
        for (size_t k = 0; k < i; k++) {
            is_again = is_again || str_eq(resources->v[k], resources->v[i]);
        }
        if (!is_again && (r = change_resource(call, t, resources->v[i], c, err)) < 0) {
            return r;
        }
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    return txn_commit(t, err);
}

int ec2_create_tags(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_create_tags_request *in = input;
    return change_tags(call, &in->resources, &(struct tag_change){&in->tags, false}, err);
}

int ec2_delete_tags(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_delete_tags_request *in = input;
    return change_tags(call, &in->resources, &(struct tag_change){&in->tags, true}, err);
}

/* ---- DescribeTags: one row per tag ---- */

static const char *const filters[] = {"key", "resource-id", "resource-type", "value"};

struct row {
    struct str key, id, type, value;
    struct str order; /* "<resource id>\0<tag key>": the paging key */
};

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct row *r = obj;
    aws_filter_add(p, name_idx == 0   ? r->key
                      : name_idx == 1 ? r->id
                      : name_idx == 2 ? r->type
                                      : r->value);
}

static void row_tag(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    const struct row *r = obj;
    aws_filter_tag(p, r->key, r->value);
}

static struct row *all_rows(struct aws_call *call, size_t *ret_n)
{
    struct entries all = store_list(gw_of(call), call->arena, "tags", call->account);
    size_t n = 0, k = 0;
    for (size_t i = 0; i < all.n; i++) {
        n += REC(tags, all.v[i])->tags.n;
    }
    struct row *rows = arena_array(call->arena, n + 1, sizeof(*rows));
    for (size_t i = 0; rows && i < all.n; i++) {
        const struct tags *t = REC(tags, all.v[i]);
        for (size_t j = 0; j < t->tags.n; j++, k++) {
            rows[k] = (struct row){.key = t->tags.v[j].key,
                                   .id = t->id,
                                   .type = t->resource_type,
                                   .value = t->tags.v[j].value};
            rows[k].order =
                arena_fmt(call->arena, "%.*s %.*s", STR_ARG(t->id), STR_ARG(rows[k].key));
        }
    }
    *ret_n = n;
    return rows;
}

int ec2_describe_tags(struct aws_call *call, const void *input, void *output, struct err *err)
{
    const struct ec2_describe_tags_request *in = input;
    struct ec2_describe_tags_result *out = output;
    const struct aws_filter_spec fs = {.names = filters,
                                       .n_names = ARRAY_LEN(filters),
                                       .has_tags = true,
                                       .values = values,
                                       .tags = row_tag};
    const struct aws_page_spec ps = {.min = 5, .max = 1000, .dflt = 1000};
    struct aws_filter *f = NULL;
    struct aws_page page;
    int r = aws_filter_open(call->arena, &fs, &in->filters, &f, err);
    if (r < 0 ||
        (r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    size_t total = 0, n = 0;
    struct row *rows = all_rows(call, &total);
    if (!rows) {
        return fail(err, -ENOMEM, "InternalError",
                    "there are too many tags for one answer: ask for pages");
    }
    struct str last = STR_NONE;
    AWS_LIST_MAKE(call->arena, &out->tags, MIN(total, page.max));
    for (size_t i = 0; i < total; i++) {
        if ((str_is_set(page.after) && str_cmp(rows[i].order, page.after) <= 0) ||
            !aws_filter_match(f, call, &rows[i])) {
            continue;
        }
        if (n == page.max) {
            out->next_token = aws_page_token(call, last);
            break;
        }
        last = rows[i].order;
        out->tags.v[n++] = (struct ec2_tag_description){.key = rows[i].key,
                                                        .resource_id = rows[i].id,
                                                        .resource_type = rows[i].type,
                                                        .value = rows[i].value};
    }
    out->tags.n = n;
    return 0;
}
