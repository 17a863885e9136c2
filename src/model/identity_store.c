/* Accounts and keys in the store: what needs a transaction (identity.c has the look-ups). */
#include "codec/json.h"
#include "model/identity.h"
#include "model/keys.h"
#include <errno.h>

#define TXN_TRIES    8
#define MAX_RECORD   (64u << 10)
#define LIST_ARENA   (16u << 20) /* a page of KV_LIST_MAX records of iam/ or spec/ */
#define DELETE_BATCH 100u

static int add_put(struct arena *a, const struct rec_desc *d, const void *rec, struct str key,
                   struct kv_op *op, struct err *err)
{
    AUTO_BUF text;
    buf_init(&text, MAX_RECORD);
    int r = rec_save(d, rec, &text, err);
    if (r < 0) {
        return r;
    }
    *op = (struct kv_op){.type = KV_PUT, .key = key, .value = arena_str_dup(a, buf_str(&text))};
    return str_is_set(op->key) && str_is_set(op->value)
               ? 0
               : fail(err, -ENOMEM, "RequestTooLarge", "request arena is full");
}

/* The keys of all operations must be absent. */
static int create_all(struct kv *kv, const struct kv_op *op, size_t n, struct err *err)
{
    struct kv_cmp cmp[8] = {0};
    for (size_t i = 0; i < n; i++) {
        cmp[i].key = op[i].key;
    }
    uint64_t rev = 0;
    return kv_txn(kv, cmp, n, op, n, &rev, err);
}

int identity_create_account(struct kv *kv, struct arena *a, struct keys *keys, struct str name,
                            struct identity_new *ret, struct err *err)
{
    for (int i = 0; i < TXN_TRIES; i++) {
        struct kv_op op[4];
        struct kv_item item;
        struct err e = ERR_INIT;
        int r = identity_make_account(a, keys, name, ret, err);
        if (r < 0) {
            return r;
        }
        struct str claim = key_account_claim(a, name);
        op[3] = (struct kv_op){
            .type = KV_PUT,
            .key = claim,
            .value = arena_fmt(a, "{\"owner\":\"%.*s\"}", STR_ARG(ret->account.id))};
        r = add_put(a, &account_desc, &ret->account, key_account(a, ret->account.id), &op[0],
                    err);
        r = r < 0 ? r
                  : add_put(a, &user_desc, &ret->user,
                            key_user(a, ret->account.id, ret->user.name), &op[1], err);
        r = r < 0 ? r
                  : add_put(a, &access_key_desc, &ret->key, key_access_key(a, ret->key.id),
                            &op[2], err);
        if (r < 0) {
            return r;
        }
        r = create_all(kv, op, 4, &e);
        if (r == 0) {
            return 0;
        }
        if (r != -EAGAIN) {
            return fail(err, r, e.name, "%s", e.msg);
        }
        if (kv_get(kv, a, claim, &item, NULL) == 0) {
            return fail(err, -EEXIST, "AccountNameInUse",
                        "an account named '%.*s' is there already", STR_ARG(name));
        }
        /* The number was taken: another one. */
    }
    return fail(err, -EAGAIN, "TxnConflict", "no free account number was found");
}

/* Calls fn for each item of a prefix; a page at a time. fn may delete the item. */
typedef int (*each_fn)(void *ctx, const struct kv_item *item, struct err *err);
static int each(struct kv *kv, struct str prefix, each_fn fn, void *ctx, struct err *err)
{
    char last[KV_MAX_KEY];
    struct str after = STR_NONE;
    for (;;) {
        AUTO(arena_freep) struct arena *a = arena_new(LIST_ARENA);
        struct kv_list l = {0};
        int r = kv_list(kv, a, prefix, after, 0, &l, err);
        if (r < 0) {
            return r;
        }
        for (size_t i = 0; i < l.n; i++) {
            r = fn(ctx, &l.v[i], err);
            if (r < 0) {
                return r;
            }
        }
        if (!l.has_more || l.n == 0) {
            return 0;
        }
        struct str key = l.v[l.n - 1].key;
        if (key.n > sizeof(last)) {
            return fail(err, -E2BIG, "TooLarge", "a key of the store is too long");
        }
        memcpy(last, key.p, key.n);
        after = str_n(last, key.n);
    }
}

/* One kind of record of a prefix, all of it, into an arena. */
struct collect {
    struct arena *a;
    const struct rec_desc *d;
    struct str account; /* STR_NONE: of all */
    char *v;
    size_t n, cap;
};

static int collect_one(void *ctx, const struct kv_item *item, struct err *err)
{
    struct collect *c = ctx;
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        char *v = arena_array(c->a, cap, c->d->size);
        if (!v) {
            return fail(err, -ENOMEM, "RequestTooLarge", "too many records");
        }
        if (c->n) {
            memcpy(v, c->v, c->n * c->d->size);
        }
        c->v = v;
        c->cap = cap;
    }
    void *rec = c->v + c->n * c->d->size;
    int r = rec_load(c->d, c->a, item->value, rec, err);
    if (r < 0) {
        return r;
    }
    if (c->d == &access_key_desc && str_is_set(c->account) &&
        !str_eq(((struct access_key *)rec)->account, c->account)) {
        return 0;
    }
    c->n++;
    return 0;
}

int identity_list_accounts(struct kv *kv, struct arena *a, struct account_list *ret,
                           struct err *err)
{
    struct collect c = {.a = a, .d = &account_desc};
    int r = each(kv, STR("iam/account/"), collect_one, &c, err);
    if (r == 0) {
        *ret = (struct account_list){.v = (struct account *)(void *)c.v, .n = c.n};
    }
    return r;
}

int identity_list_keys(struct kv *kv, struct arena *a, struct str account,
                       struct access_key_list *ret, struct err *err)
{
    struct collect c = {.a = a, .d = &access_key_desc, .account = account};
    int r = each(kv, STR("iam/key/"), collect_one, &c, err);
    if (r == 0) {
        *ret = (struct access_key_list){.v = (struct access_key *)(void *)c.v, .n = c.n};
    }
    return r;
}

static int get_account(struct kv *kv, struct arena *a, struct str id, struct account *ret,
                       struct kv_item *item, struct err *err)
{
    struct err e = ERR_INIT;
    int r =
        account_id_is_wellformed(id) ? kv_get(kv, a, key_account(a, id), item, &e) : -ENOENT;
    if (r == -ENOENT) {
        return fail(err, r, "NoSuchAccount", "there is no account %.*s", STR_ARG(id));
    }
    return r < 0 ? fail(err, r, e.name, "%s", e.msg)
                 : rec_load(&account_desc, a, item->value, ret, err);
}

int identity_create_key(struct kv *kv, struct arena *a, struct keys *keys, struct str account,
                        struct str user, struct access_key *ret, struct str *ret_secret,
                        struct err *err)
{
    struct account acc;
    struct kv_item acc_item, user_item;
    struct access_key_list old = {0};
    struct err e = ERR_INIT;
    int r = get_account(kv, a, account, &acc, &acc_item, err);
    if (r < 0) {
        return r;
    }
    r = kv_get(kv, a, key_user(a, account, user), &user_item, &e);
    if (r < 0) {
        return r == -ENOENT ? fail(err, r, "NoSuchUser", "account %.*s has no user '%.*s'",
                                   STR_ARG(account), STR_ARG(user))
                            : fail(err, r, e.name, "%s", e.msg);
    }
    r = identity_list_keys(kv, a, account, &old, err);
    if (r < 0) {
        return r;
    }
    size_t n_of_user = 0;
    for (size_t i = 0; i < old.n; i++) {
        n_of_user += str_eq(old.v[i].user, user);
    }
    if (n_of_user >= IDENTITY_MAX_KEYS) {
        return fail(err, -E2BIG, "LimitExceeded", "user '%.*s' already has %zu access keys",
                    STR_ARG(user), n_of_user);
    }
    r = identity_make_key(a, keys, account, user, ret, ret_secret, err);
    if (r < 0) {
        return r;
    }
    struct kv_op op[2];
    r = add_put(a, &access_key_desc, ret, key_access_key(a, ret->id), &op[0], err);
    if (r < 0) {
        return r;
    }
    /* The user is written too, unchanged: of two calls at once one is refused by the compare,
     * and the limit holds. */
    op[1] = (struct kv_op){.type = KV_PUT, .key = user_item.key, .value = user_item.value};
    const struct kv_cmp cmp[] = {{.key = op[0].key},
                                 {.key = user_item.key, .mod_rev = user_item.mod_rev},
                                 {.key = acc_item.key, .mod_rev = acc_item.mod_rev}};
    uint64_t rev = 0;
    return kv_txn(kv, cmp, ARRAY_LEN(cmp), op, ARRAY_LEN(op), &rev, err);
}

/* Deleting ------------------------------------------------------------------------------- */

/* What a person makes, in the order in which it is named. The rest comes with the account. */
static const struct {
    const char *kind, *one, *many;
} made_kinds[] = {
    {"instance", "instance", "instances"}, {"volume", "volume", "volumes"},
    {"snapshot", "snapshot", "snapshots"}, {"image", "image", "images"},
    {"keypair", "key pair", "key pairs"},  {"eni", "network interface", "network interfaces"},
    {"eip", "address", "addresses"},
};

struct counter {
    size_t n;
};

static int count_one(void *ctx, const struct kv_item *item, struct err *err)
{
    ((struct counter *)ctx)->n++;
    return 0;
}

static int check_empty(struct kv *kv, struct arena *a, struct str account, struct err *err)
{
    AUTO_BUF left;
    buf_init(&left, 500);
    for (size_t i = 0; i < ARRAY_LEN(made_kinds); i++) {
        struct counter c = {0};
        int r = each(kv, key_spec_prefix(a, made_kinds[i].kind, account), count_one, &c, err);
        if (r < 0) {
            return r;
        }
        if (c.n > 0) {
            buf_fmt(&left, "%s%zu %s", left.n ? ", " : "", c.n,
                    c.n == 1 ? made_kinds[i].one : made_kinds[i].many);
        }
    }
    if (left.n == 0) {
        return 0;
    }
    fail(err, -EBUSY, "AccountNotEmpty", "account %.*s still has %s", STR_ARG(account),
         buf_cstr(&left));
    err_hint(err, "delete them first; terminated instances are shown for an hour");
    return -EBUSY;
}

static int set_status(struct kv *kv, struct arena *a, const struct account *acc,
                      const char *status, struct kv_item *item, struct err *err)
{
    struct account changed = *acc;
    struct kv_op op;
    changed.status = str_c(status);
    int r = add_put(a, &account_desc, &changed, item->key, &op, err);
    if (r < 0) {
        return r;
    }
    const struct kv_cmp cmp = {.key = item->key, .mod_rev = item->mod_rev};
    r = kv_txn(kv, &cmp, 1, &op, 1, &item->mod_rev, err);
    return r;
}

/* Deletes collected keys in transactions of DELETE_BATCH. */
struct deleter {
    struct kv *kv;
    struct arena *a;
    struct str account;
    struct str *ids; /* of its resources: claims hang under VPCs and subnets */
    size_t n_ids, cap_ids;
    struct kv_op op[DELETE_BATCH];
    size_t n;
};

static int flush(struct deleter *d, struct err *err)
{
    uint64_t rev = 0;
    int r = d->n ? kv_txn(d->kv, NULL, 0, d->op, d->n, &rev, err) : 0;
    d->n = 0;
    return r;
}

static int delete_key(struct deleter *d, struct str key, struct err *err)
{
    key = arena_str_dup(d->a, key);
    if (!str_is_set(key)) {
        return fail(err, -ENOMEM, "RequestTooLarge", "too many records");
    }
    d->op[d->n++] = (struct kv_op){.type = KV_DELETE, .key = key};
    return d->n == DELETE_BATCH ? flush(d, err) : 0;
}

static int note_spec(void *ctx, const struct kv_item *item, struct err *err)
{
    struct deleter *d = ctx;
    struct key_parts k;
    if (key_parse(item->key, &k) < 0 || !str_eq(k.account, d->account)) {
        return 0;
    }
    if (d->n_ids == d->cap_ids) {
        size_t cap = d->cap_ids ? d->cap_ids * 2 : 64;
        struct str *ids = arena_array(d->a, cap, sizeof(*ids));
        if (!ids) {
            return fail(err, -ENOMEM, "RequestTooLarge", "too many records");
        }
        if (d->n_ids) {
            memcpy(ids, d->ids, d->n_ids * sizeof(*ids));
        }
        d->ids = ids;
        d->cap_ids = cap;
    }
    d->ids[d->n_ids] = arena_str_dup(d->a, k.id);
    return str_is_set(d->ids[d->n_ids++])
               ? 0
               : fail(err, -ENOMEM, "RequestTooLarge", "too many records");
}

static int delete_spec(void *ctx, const struct kv_item *item, struct err *err)
{
    struct deleter *d = ctx;
    struct key_parts k;
    bool is_ours = key_parse(item->key, &k) == 0 && str_eq(k.account, d->account);
    return is_ours ? delete_key(d, item->key, err) : 0;
}

/* {"owner": id} */
static bool is_owner(struct str claim, struct str id)
{
    AUTO(json_freep) struct json *j = NULL;
    return json_parse(claim, &j, NULL) == 0 && str_eq(json_get_str(j, "owner"), id);
}

/* claim/<what>/<x>[/...]: those whose x is the account or one of its resources, or that it owns. */
static int delete_claim(void *ctx, const struct kv_item *item, struct err *err)
{
    struct deleter *d = ctx;
    struct str rest = item->key, part = STR_NONE;
    if (!str_next(&rest, '/', &part) || !str_next(&rest, '/', &part) ||
        !str_next(&rest, '/', &part)) {
        return 0;
    }
    bool is_ours = str_eq(part, d->account) || is_owner(item->value, d->account);
    for (size_t i = 0; i < d->n_ids && !is_ours; i++) {
        is_ours = str_eq(part, d->ids[i]);
    }
    return is_ours ? delete_key(d, item->key, err) : 0;
}

static int delete_access_key(void *ctx, const struct kv_item *item, struct err *err)
{
    struct deleter *d = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(MAX_RECORD * 4);
    struct access_key k;
    if (rec_load(&access_key_desc, a, item->value, &k, NULL) < 0 ||
        !str_eq(k.account, d->account)) {
        return 0;
    }
    return delete_key(d, item->key, err);
}

static int delete_any(void *ctx, const struct kv_item *item, struct err *err)
{
    return delete_key(ctx, item->key, err);
}

int identity_delete_account(struct kv *kv, struct str account, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(LIST_ARENA);
    struct account acc;
    struct kv_item item;
    struct deleter *d = arena_new_of(a, struct deleter);
    *d = (struct deleter){.kv = kv, .a = a, .account = account};
    int r = get_account(kv, a, account, &acc, &item, err);
    r = r < 0 ? r : check_empty(kv, a, account, err);
    if (r < 0) {
        return r;
    }
    /* From here its keys open nothing; then look again, for what came in meanwhile. */
    r = set_status(kv, a, &acc, ACCOUNT_CLOSING, &item, err);
    if (r < 0) {
        return r;
    }
    r = check_empty(kv, a, account, err);
    if (r < 0) {
        int undo = set_status(kv, a, &acc, ACCOUNT_ACTIVE, &item, NULL);
        return undo < 0 && r != -EBUSY ? undo : r;
    }
    /* Claims go before what they are found by, the account last: a second call can go on. */
    r = each(kv, STR("spec/"), note_spec, d, err);
    r = r < 0 ? r : each(kv, STR("claim/"), delete_claim, d, err);
    r = r < 0 ? r : flush(d, err);
    r = r < 0 ? r : each(kv, STR("spec/"), delete_spec, d, err);
    r = r < 0 ? r : each(kv, STR("iam/key/"), delete_access_key, d, err);
    r = r < 0 ? r : each(kv, key_user(a, account, STR("")), delete_any, d, err);
    r = r < 0 ? r : delete_key(d, key_account(a, account), err);
    return r < 0 ? r : flush(d, err);
}
