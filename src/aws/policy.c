#include "aws/policy.h"

#include "aws/arn.h"
#include "aws/ids.h"
#include <errno.h>

/* '*' and '?' of policies; unlike filters there is no quoting. */
static bool matches_any(const struct str *pats, size_t n, struct str s, unsigned flags)
{
    for (size_t i = 0; i < n; i++) {
        if (str_glob(pats[i], s, flags)) {
            return true;
        }
    }
    return false;
}

enum aws_verdict aws_evaluate(const struct aws_authz *z, const struct aws_statement *st,
                              size_t n_st, struct str *ret_arn)
{
    enum aws_verdict verdict = AWS_ALLOWED;
    for (size_t r = 0; r < z->n_arns; r++) {
        bool is_allowed = false, is_denied = false;
        for (size_t i = 0; i < n_st; i++) {
            if (matches_any(st[i].actions, st[i].n_actions, z->action, STR_GLOB_IGNORES_CASE) &&
                matches_any(st[i].resources, st[i].n_resources, z->arns[r], 0)) {
                is_denied = is_denied || st[i].is_deny;
                is_allowed = is_allowed || !st[i].is_deny;
            }
        }
        if (is_denied || (!is_allowed && verdict == AWS_ALLOWED)) {
            verdict = is_denied ? AWS_DENIED_EXPLICITLY : AWS_DENIED_BY_DEFAULT;
            if (ret_arn) {
                *ret_arn = z->arns[r];
            }
        }
        if (is_denied) {
            break;
        }
    }
    return z->n_arns > 0 ? verdict : AWS_DENIED_BY_DEFAULT;
}

int aws_policy_builtin(void *ctx, const struct aws_principal *who, struct arena *a,
                       const struct aws_statement **ret, size_t *ret_n, struct err *err)
{
    static const struct str all[] = {{"*", 1}};
    static const struct aws_statement administrator[] = {
        {.actions = all, .n_actions = 1, .resources = all, .n_resources = 1}};
    *ret = administrator;
    *ret_n = who->is_root || str_eqc(who->user_name, "admin") ? 1 : 0;
    return 0;
}

int aws_authorize(const struct aws_authz *z, const struct aws_service *s,
                  aws_policy_source_fn source, void *ctx, struct arena *a, struct err *err)
{
    const struct aws_statement *st = NULL;
    size_t n_st = 0;
    struct str arn = STR("*");
    int rc = source(ctx, z->who, a, &st, &n_st, err);
    if (rc < 0) {
        return rc;
    }
    enum aws_verdict v = aws_evaluate(z, st, n_st, &arn);
    if (v == AWS_ALLOWED) {
        return 0;
    }
    bool is_ec2 = s->protocol == AWS_PROTOCOL_EC2;
    return fail(err, -EACCES, is_ec2 ? "UnauthorizedOperation" : "AccessDenied",
                "%sUser: %.*s is not authorized to perform: %.*s on resource: %.*s %s",
                is_ec2 ? "You are not authorized to perform this operation. " : "",
                STR_ARG(z->who->arn), STR_ARG(z->action), STR_ARG(arn),
                v == AWS_DENIED_EXPLICITLY
                    ? "with an explicit deny in an identity-based policy"
                    : "because no identity-based policy allows the action");
}

/* ---- the ARNs of a call ---- */

struct arns {
    const struct aws_call *call;
    struct str *v;
    size_t n, cap;
};

static void add(struct arns *l, struct str kind, struct str id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct str *v = arena_xalloc(l->call->arena, cap * sizeof(*v));
        if (l->n) {
            memcpy(v, l->v, l->n * sizeof(*v));
        }
        l->v = v;
        l->cap = cap;
    }
    struct arena *a = l->call->arena;
    /* "*": the kind follows from the id's prefix. An id may hold any byte: it stays one
     * resource, patterns match whole names. */
    bool is_any = str_eqc(kind, "*");
    enum aws_id_kind k;
    if (is_any && aws_id_kind_of(id, &k) == 0) {
        kind = str_c(aws_id_resource_type(k));
        is_any = false;
    }
    char *text = arena_xalloc(a, kind.n + id.n + 2);
    memcpy(text, kind.p, kind.n);
    text[kind.n] = '/';
    if (id.n) {
        memcpy(text + kind.n + 1, id.p, id.n);
    }
    /* Images and snapshots have no account in their ARN. */
    bool is_public = str_eqc(kind, "image") || str_eqc(kind, "snapshot");
    bool is_ebs = strcmp(l->call->service->name, "ebs") == 0; /* its snapshots are EC2's */
    bool is_global =
        l->call->service->protocol == AWS_PROTOCOL_QUERY; /* IAM and STS have no region */
    l->v[l->n++] =
        arn_make(a, str_c(is_ebs ? "ec2" : l->call->service->name),
                 is_global ? STR("") : l->call->region, is_public ? STR("") : l->call->account,
                 is_any && str_eqc(id, "*") ? STR("*") : str_n(text, kind.n + id.n + 1));
}

/* The values that a path of members leads to, through structures and lists of them; returns how
 * many there are. */
static size_t add_path(struct arns *l, struct str kind, uint16_t shape, const void *at,
                       struct str path)
{
    const struct aws_service *s = l->call->service;
    struct str name = str_cut(path, '.'), rest = str_skip(path, name.n + 1);
    const struct aws_member *m = aws_member_by_name(s, &s->shapes[shape], name);
    const struct aws_shape *ms = m ? &s->shapes[m->shape] : NULL;
    const void *p = m ? (const char *)at + m->off : NULL;
    const struct aws_str_list *list = p; /* all lists are laid out like this one */
    size_t n = 0;
    if (!ms) {
        return 0;
    }
    switch (ms->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
        n = ((const struct str *)p)->n > 0;
        if (n > 0) {
            add(l, kind, *(const struct str *)p);
        }
        return n;
    case AWS_T_STRUCT: {
        const void *inner = *(const void *const *)p;
        return inner ? add_path(l, kind, m->shape, inner, rest) : 0;
    }
    case AWS_T_LIST:
        for (size_t i = 0; s->shapes[ms->elem].type == AWS_T_STRUCT && i < list->n; i++) {
            const char *v =
                (const char *)list->v + i * aws_stored_size(&s->shapes[ms->elem], false);
            n += add_path(l, kind, ms->elem, v, rest);
        }
        if (s->shapes[ms->elem].type == AWS_T_STR || s->shapes[ms->elem].type == AWS_T_ENUM) {
            for (size_t i = 0; i < list->n; i++) {
                add(l, kind, list->v[i]);
            }
            n = list->n;
        }
        return n;
    default: return 0;
    }
}

/* "{Member}" or "{Member.Inner}": "*" when it is absent; "{Member?}": nothing when it is. */
static void add_member(struct arns *l, struct str kind, struct str path, const void *input)
{
    uint16_t in = l->call->service->ops[l->call->op].in;
    bool is_optional = path.n > 0 && path.p[path.n - 1] == '?';
    path.n -= is_optional;
    size_t n = in == AWS_SHAPE_NONE || !input ? 0 : add_path(l, kind, in, input, path);
    if (n == 0 && !is_optional) {
        add(l, kind, STR("*"));
    }
}

void aws_call_arns(const struct aws_call *call, const void *input, const struct str **ret,
                   size_t *ret_n)
{
    static const struct str any[] = {{"*", 1}};
    struct arns l = {.call = call};
    struct str rest = str_c(aws_name(call->service, call->service->ops[call->op].resources)),
               one;
    while (rest.n > 0 && str_next(&rest, ' ', &one)) {
        struct str kind = str_cut(one, '/'), id = str_skip(one, kind.n + 1);
        if (id.n > 2 && id.p[0] == '{') {
            add_member(&l, kind, str_n(id.p + 1, id.n - 2), input);
        } else {
            add(&l, kind, id);
        }
    }
    *ret = l.n ? l.v : any;
    *ret_n = l.n ? l.n : 1;
}
