#include "awsgw/find.h"

#include "model/keys.h"

/* Where records of a kind lie, by kind of id. */
static const char *const kinds[AWS_ID_N] = {
    [AWS_ID_INSTANCE] = "instance", [AWS_ID_VOLUME] = "volume", [AWS_ID_SNAPSHOT] = "snapshot",
    [AWS_ID_VPC] = "vpc",           [AWS_ID_SUBNET] = "subnet", [AWS_ID_SECURITY_GROUP] = "sg",
    [AWS_ID_ENI] = "eni",           [AWS_ID_IGW] = "igw",       [AWS_ID_ROUTE_TABLE] = "rtb",
    [AWS_ID_ACL] = "acl",
};

struct finder {
    struct aws_call *call;
    const char *kind;
};

static const void *find_in_account(void *ctx, struct str id)
{
    struct finder *f = ctx;
    const struct view_entry *e =
        f->kind ? store_spec(gw_of(f->call), f->call->arena, f->kind, f->call->account, id)
                : NULL;
    return e && e->obj ? e : NULL;
}

const struct view_entry *find_one(struct aws_call *call, enum aws_id_kind kind, struct str id,
                                  struct err *err)
{
    struct finder f = {call, kinds[kind]};
    const void *found = NULL;
    return aws_id_resolve(kind, id, find_in_account, &f, &found, err) < 0 ? NULL : found;
}

int find_many(struct aws_call *call, enum aws_id_kind kind, const struct aws_str_list *ids,
              struct entries *ret, struct err *err)
{
    struct finder f = {call, kinds[kind]};
    const void **found = NULL;
    size_t n = 0;
    int r = aws_ids_resolve(kind, ids, find_in_account, &f, call->arena, &found, &n, err);
    if (r < 0) {
        return r;
    }
    ret->v = arena_xalloc(call->arena, (n ? n : 1) * sizeof(*ret->v));
    ret->n = n;
    for (size_t i = 0; i < n; i++) {
        ret->v[i] = found[i];
    }
    return 0;
}
