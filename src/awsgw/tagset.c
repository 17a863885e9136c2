#include "awsgw/tagset.h"

#include "model/keys.h"

#include <errno.h>

int tag_check(struct str key, struct str value, struct err *err)
{
    size_t k = str_utf8_len(key), v = str_utf8_len(value);
    if (k == 0) {
        return fail(err, -EINVAL, "InvalidParameterValue", "Tag key cannot be empty");
    }
    if (k > TAG_KEY_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Tag key exceeds the maximum length of %u characters", TAG_KEY_MAX);
    }
    if (v > TAG_VALUE_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Tag value exceeds the maximum length of %u characters", TAG_VALUE_MAX);
    }
    if (key.n >= 4 && str_ieq(str_n(key.p, 4), STR("aws:"))) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Tag keys starting with 'aws:' are reserved for internal use");
    }
    return 0;
}

static bool is_allowed(struct str type, const char *const *allowed)
{
    for (; *allowed; allowed++) {
        if (str_eqc(type, *allowed)) {
            return true;
        }
    }
    return false;
}

/* Inserts in order of keys; false when the key is there already. */
static bool insert(struct tag_list *l, struct tag t)
{
    size_t i = 0;
    while (i < l->n && str_cmp(l->v[i].key, t.key) < 0) {
        i++;
    }
    if (i < l->n && str_eq(l->v[i].key, t.key)) {
        return false;
    }
    memmove(&l->v[i + 1], &l->v[i], (l->n - i) * sizeof(*l->v));
    l->v[i] = t;
    l->n++;
    return true;
}

int tags_from_spec(struct arena *a, const struct ec2_tag_specification_list *specs,
                   const char *resource_type, const char *const *allowed, struct tag_list *ret,
                   struct err *err)
{
    struct tag_list tags = {.v = arena_xalloc(a, (TAGS_MAX + 1) * sizeof(struct tag))};
    for (size_t i = 0; i < specs->n; i++) {
        const struct ec2_tag_specification *s = &specs->v[i];
        if (!is_allowed(s->resource_type, allowed)) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "'%.*s' is not a valid taggable resource type for this operation.",
                        STR_ARG(s->resource_type));
        }
        for (size_t k = 0; str_eqc(s->resource_type, resource_type) && k < s->tags.n; k++) {
            struct str key = s->tags.v[k].key,
                       value = s->tags.v[k].value.p ? s->tags.v[k].value : STR("");
            int r = tag_check(key, value, err);
            if (r < 0) {
                return r;
            }
            if (tags.n == TAGS_MAX) {
                return fail(err, -EINVAL, "TagLimitExceeded",
                            "The maximum number of Tags for a resource has been reached.");
            }
            if (!insert(&tags, (struct tag){.key = key, .value = value})) {
                return fail(err, -EINVAL, "InvalidParameterValue",
                            "Duplicate tag key '%.*s' specified.", STR_ARG(key));
            }
        }
    }
    *ret = tags;
    return 0;
}

void tags_create(struct txn *t, struct str account, struct str id, const char *resource_type,
                 struct tag_list tags)
{
    if (tags.n > 0) {
        struct tags rec = {
            .id = id, .account = account, .resource_type = str_c(resource_type), .tags = tags};
        txn_create(t, key_spec(t->a, "tags", account, id), &tags_desc, &rec);
    }
}

struct tag_list tags_of(struct gw *gw, struct arena *a, struct str account, struct str id)
{
    const struct tags *t = REC(tags, store_spec(gw, a, "tags", account, id));
    return t ? t->tags : (struct tag_list){0};
}

void tags_out(struct arena *a, struct tag_list tags, struct ec2_tag_list *out)
{
    if (tags.n == 0) {
        return; /* EC2 leaves the element out when there is no tag */
    }
    AWS_LIST_MAKE(a, out, tags.n);
    for (size_t i = 0; i < tags.n; i++) {
        out->v[i].key = tags.v[i].key;
        out->v[i].value = tags.v[i].value;
    }
}

struct str tags_get(struct tag_list tags, struct str key)
{
    for (size_t i = 0; i < tags.n; i++) {
        if (str_eq(tags.v[i].key, key)) {
            return tags.v[i].value;
        }
    }
    return STR_NONE;
}

int tags_merge(struct aws_call *call, struct tag_list asked, struct str id,
               struct tag_list *ret, struct err *err)
{
    struct tag_list own = tags_of(gw_of(call), call->arena, call->account, id);
    *ret = (struct tag_list){
        .v = arena_xalloc(call->arena, (asked.n + own.n + 1) * sizeof(*ret->v))};
    for (size_t i = 0, k = 0; i < asked.n || k < own.n;) { /* both are sorted */
        int c = i == asked.n ? 1 : k == own.n ? -1 : str_cmp(asked.v[i].key, own.v[k].key);
        ret->v[ret->n++] = c <= 0 ? asked.v[i] : own.v[k];
        i += c <= 0;
        k += c >= 0;
    }
    return ret->n <= TAGS_MAX
               ? 0
               : fail(err, -E2BIG, "TagLimitExceeded",
                      "The maximum number of Tags for a resource has been reached.");
}
