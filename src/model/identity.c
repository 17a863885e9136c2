#include "model/identity.h"
#include "base/rand.h"
#include "base/time.h"
#include "codec/base64.h"
#include "kv/view.h"
#include <errno.h>
#include <pthread.h>

#define KEY_RANDOM     16u
#define USER_ID_RANDOM 17u
#define SECRET_BYTES   30u /* 40 characters of base64 */
#define MAX_NAME       50u
#define RECORD_ARENA   (64u << 10)
#define ADMIN_USER     "admin"

static const struct rec_field account_fields[] = {
    REC_FIELD(struct account, REC_STR, id),
    REC_FIELD(struct account, REC_STR, name),
    REC_FIELD(struct account, REC_STR, status),
    REC_FIELD(struct account, REC_U64, create_ns),
};
REC_DESC(account_desc, struct account, "account", 1, account_fields);
static const struct rec_field user_fields[] = {
    REC_FIELD(struct user, REC_STR, account),   REC_FIELD(struct user, REC_STR, name),
    REC_FIELD(struct user, REC_STR, id),        REC_FIELD(struct user, REC_STR, path),
    REC_FIELD(struct user, REC_U64, create_ns),
};
REC_DESC(user_desc, struct user, "user", 1, user_fields);
static const struct rec_field access_key_fields[] = {
    REC_FIELD(struct access_key, REC_STR, id),
    REC_FIELD(struct access_key, REC_STR, account),
    REC_FIELD(struct access_key, REC_STR, user),
    REC_FIELD(struct access_key, REC_STR, status),
    REC_FIELD(struct access_key, REC_STR, secret),
    REC_FIELD(struct access_key, REC_U64, create_ns),
};
REC_DESC(access_key_desc, struct access_key, "access key", 1, access_key_fields);

struct str key_account(struct arena *a, struct str account)
{
    return arena_fmt(a, "iam/account/%.*s", STR_ARG(account));
}

struct str key_user(struct arena *a, struct str account, struct str name)
{
    return arena_fmt(a, "iam/user/%.*s/%.*s", STR_ARG(account), STR_ARG(name));
}

struct str key_access_key(struct arena *a, struct str id)
{
    return arena_fmt(a, "iam/key/%.*s", STR_ARG(id));
}

struct str key_account_claim(struct arena *a, struct str name)
{
    return arena_fmt(a, "claim/account/%.*s", STR_ARG(name));
}

bool account_id_is_wellformed(struct str id)
{
    for (size_t i = 0; i < id.n; i++) {
        if (id.p[i] < '0' || id.p[i] > '9') {
            return false;
        }
    }
    return id.n == 12;
}

/* The purpose that a key's secret is wrapped for. */
static struct str purpose_of(struct arena *a, struct str key_id)
{
    return arena_fmt(a, "access-key/%.*s", STR_ARG(key_id));
}

/* Look-ups ------------------------------------------------------------------------------- */

/* Secrets that were unwrapped lately: most requests are made with few keys, and unwrapping costs
 * as much as a signature. An entry is good for the very text that it came from. */
#define N_OPENED 64u
struct opened {
    char access_key[129]; /* a text that was copied to another key opens nothing */
    struct secret wrapped, plain;
};

struct identity {
    struct kv *kv;
    struct view *view;
    struct keys *keys;
    pthread_mutex_t mu;
    struct opened opened[N_OPENED]; /* GUARDED_BY(mu) */
};

/* An object of the view: one record and its arena. */
struct held {
    struct arena *arena;
    union {
        struct account account;
        struct user user;
        struct access_key key;
    };
};

static const struct rec_desc *desc_of(struct str key)
{
    return str_has_prefixc(key, "iam/account/") ? &account_desc
           : str_has_prefixc(key, "iam/user/")  ? &user_desc
           : str_has_prefixc(key, "iam/key/")   ? &access_key_desc
                                                : NULL;
}

static void *parse(struct str key, struct str value, struct err *err)
{
    const struct rec_desc *d = desc_of(key);
    if (!d) {
        return NULL;
    }
    struct arena *a = arena_new(RECORD_ARENA);
    struct held *h = arena_new_of(a, struct held);
    h->arena = a;
    if (rec_load(d, a, value, &h->account, err) < 0) {
        arena_free(a);
        return NULL;
    }
    return h;
}

static void free_held(struct str key, void *obj)
{
    if (obj) {
        arena_free(((struct held *)obj)->arena);
    }
}

int identity_open(struct kv *kv, struct keys *keys, uint64_t timeout_ns, struct identity **ret,
                  struct err *err)
{
    static const char *const prefixes[] = {"iam/"};
    static const struct view_ops ops = {.parse = parse, .free = free_held};
    struct identity *id = calloc(1, sizeof(*id));
    if (!id) {
        abort();
    }
    id->kv = kv;
    id->keys = keys;
    pthread_mutex_init(&id->mu, NULL);
    int r =
        view_open(kv, prefixes, ARRAY_LEN(prefixes), &ops, NULL, timeout_ns, &id->view, err);
    if (r < 0) {
        pthread_mutex_destroy(&id->mu);
        free(id);
        return r;
    }
    *ret = id;
    return 0;
}

void identity_close(struct identity *id)
{
    if (id) {
        view_close(id->view);
        for (size_t i = 0; i < N_OPENED; i++) {
            secret_done(&id->opened[i].wrapped);
            secret_done(&id->opened[i].plain);
        }
        pthread_mutex_destroy(&id->mu);
        free(id);
    }
}

int identity_wait(struct identity *id, uint64_t rev, uint64_t timeout_ns)
{
    return view_wait(id->view, rev, timeout_ns);
}

static const struct held *get(struct identity *id, struct str key)
{
    const struct view_entry *e = str_is_set(key) ? view_get(id->view, key) : NULL;
    return e ? e->obj : NULL;
}

static bool dup_all(struct arena *a, struct str *const *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *s[i] = arena_str_dup(a, *s[i]);
        if (!str_is_set(*s[i])) {
            return false;
        }
    }
    return true;
}

/* Under the view's lock. Copies what the answer needs, the secret still wrapped. */
static int find_locked(struct identity *id, struct arena *a, struct str access_key,
                       struct aws_key *ret)
{
    const struct held *k = get(id, key_access_key(a, access_key));
    const struct held *acc = k ? get(id, key_account(a, k->key.account)) : NULL;
    const struct held *u = k ? get(id, key_user(a, k->key.account, k->key.user)) : NULL;
    if (!acc || !u || !str_eqc(acc->account.status, ACCOUNT_ACTIVE)) {
        return -ENOENT;
    }
    *ret = (struct aws_key){
        .who = {.account = k->key.account, .user_id = u->user.id, .user_name = u->user.name},
        .secret = k->key.secret,
        .is_active = str_eqc(k->key.status, ACCESS_KEY_ACTIVE),
    };
    ret->who.arn = arena_fmt(a, "arn:aws:iam::%.*s:user%.*s%.*s", STR_ARG(u->user.account),
                             STR_ARG(u->user.path), STR_ARG(u->user.name));
    struct str *const all[] = {&ret->who.account, &ret->who.user_id, &ret->who.user_name,
                               &ret->secret};
    return str_is_set(ret->who.arn) && dup_all(a, all, ARRAY_LEN(all)) ? 0 : -ENOMEM;
}

static struct opened *slot_of(struct identity *id, struct str access_key)
{
    unsigned h = 5381;
    for (size_t i = 0; i < access_key.n; i++) {
        h = h * 33 + (unsigned char)access_key.p[i];
    }
    return &id->opened[h % N_OPENED];
}

/* *io: wrapped, then plain, in the arena. */
static int open_secret(struct identity *id, struct arena *a, struct str access_key,
                       struct str *io, struct err *err)
{
    struct opened *o = slot_of(id, access_key);
    struct str wrapped = *io, plain = STR_NONE;
    if (!keys_is_locked(id->keys)) {
        pthread_mutex_lock(&id->mu);
        if (secret_is_set(&o->plain) && str_eqc(access_key, o->access_key) &&
            str_eq(secret_str(&o->wrapped), wrapped)) {
            plain = arena_str_dup(a, secret_str(&o->plain));
        }
        pthread_mutex_unlock(&id->mu);
    }
    if (!str_is_set(plain)) {
        AUTO_SECRET secret = SECRET_INIT;
        int r = keys_unwrap(id->keys, purpose_of(a, access_key), wrapped, &secret, err);
        if (r < 0) {
            return err_context(err, r, "access key %.*s", STR_ARG(access_key));
        }
        plain = arena_str_dup(a, secret_str(&secret));
        pthread_mutex_lock(&id->mu);
        if (secret_set(&o->wrapped, wrapped) < 0 ||
            secret_set(&o->plain, secret_str(&secret)) < 0) {
            secret_done(&o->plain);
        }
        memcpy(o->access_key, access_key.p, access_key.n); /* at most 128: checked above */
        o->access_key[access_key.n] = '\0';
        pthread_mutex_unlock(&id->mu);
    }
    *io = plain;
    return str_is_set(plain) ? 0
                             : fail(err, -ENOMEM, "RequestTooLarge", "request arena is full");
}

/* It becomes a part of a key of the store, and has one of the lengths that IAM has. */
static bool is_key_id(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return s.n >= 16 && s.n <= 128;
}

int identity_ask_key(struct identity *id, struct str access_key, uint64_t timeout_ns,
                     struct err *err)
{
    if (!is_key_id(access_key)) {
        return -ENOENT;
    }
    AUTO(arena_freep) struct arena *a = arena_new(KV_MAX_VALUE + RECORD_ARENA);
    struct kv_item item;
    int r = kv_get(id->kv, a, key_access_key(a, access_key), &item, err);
    if (r < 0) {
        return r;
    }
    r = identity_wait(id, item.mod_rev, timeout_ns);
    return r < 0 ? fail(err, r, "Unavailable", "a new key is not known in time") : 0;
}

int identity_find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                      struct err *err)
{
    struct identity *id = ctx;
    struct aws_key found = {0};
    if (!is_key_id(access_key)) {
        return -ENOENT;
    }
    view_lock(id->view);
    int r = find_locked(id, a, access_key, &found);
    view_unlock(id->view);
    if (r < 0) {
        return r == -ENOENT ? r : fail(err, r, "RequestTooLarge", "request arena is full");
    }
    r = open_secret(id, a, access_key, &found.secret, err);
    if (r < 0) {
        return r;
    }
    *ret = found;
    return 0;
}

/* New accounts and keys ------------------------------------------------------------------ */

/* n characters of A-Z and 2-7, as in AWS's ids. */
static struct str random_word(struct arena *a, const char *prefix, size_t n)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    unsigned char bytes[32];
    char word[33] = "";
    rand_bytes(bytes, n);
    for (size_t i = 0; i < n; i++) {
        word[i] = alphabet[bytes[i] & 31];
    }
    return arena_fmt(a, "%s%.*s", prefix, (int)n, word);
}

/* 12 digits that do not begin with 0, so that no tool that takes them for a number loses one.
 */
static struct str random_account_id(struct arena *a)
{
    uint64_t n = UINT64_C(100000000000) + rand_u64() % UINT64_C(900000000000);
    return arena_fmt(a, "%llu", (unsigned long long)n);
}

static bool is_good_name(struct str name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c < 0x20 || c > 0x7e || c == '/') {
            return false;
        }
    }
    return name.n > 0 && name.n <= MAX_NAME;
}

int identity_make_key(struct arena *a, struct keys *keys, struct str account, struct str user,
                      struct access_key *ret, struct str *ret_secret, struct err *err)
{
    unsigned char bytes[SECRET_BYTES];
    AUTO_BUF text;
    AUTO_BUF wrapped;
    buf_init(&text, BASE64_LEN(SECRET_BYTES));
    buf_init(&wrapped, 1024);
    struct access_key k = {
        .id = random_word(a, "AKIA", KEY_RANDOM),
        .account = account,
        .user = user,
        .status = STR(ACCESS_KEY_ACTIVE),
        .create_ns = time_wall_ns(),
    };
    rand_bytes(bytes, sizeof(bytes));
    base64_encode(str_n((const char *)bytes, sizeof(bytes)), &text);
    int r = keys_wrap(keys, purpose_of(a, k.id), buf_str(&text), &wrapped, err);
    if (r < 0) {
        return r;
    }
    k.secret = arena_str_dup(a, buf_str(&wrapped));
    *ret_secret = arena_str_dup(a, buf_str(&text));
    secret_wipe(bytes, sizeof(bytes));
    secret_wipe(text.p, text.n);
    if (!str_is_set(k.id) || !str_is_set(k.secret) || !str_is_set(*ret_secret)) {
        return fail(err, -ENOMEM, "RequestTooLarge", "request arena is full");
    }
    *ret = k;
    return 0;
}

int identity_make_account(struct arena *a, struct keys *keys, struct str name,
                          struct identity_new *ret, struct err *err)
{
    if (!is_good_name(name)) {
        return fail(err, -EINVAL, "InvalidAccountName",
                    "the name of an account has 1 to %u printable ASCII characters, no '/'",
                    MAX_NAME);
    }
    struct identity_new n = {0};
    uint64_t now = time_wall_ns();
    n.account = (struct account){
        .id = random_account_id(a),
        .name = arena_str_dup(a, name),
        .status = STR(ACCOUNT_ACTIVE),
        .create_ns = now,
    };
    n.user = (struct user){
        .account = n.account.id,
        .name = STR(ADMIN_USER),
        .id = random_word(a, "AIDA", USER_ID_RANDOM),
        .path = STR("/"),
        .create_ns = now,
    };
    if (!str_is_set(n.account.id) || !str_is_set(n.account.name) || !str_is_set(n.user.id)) {
        return fail(err, -ENOMEM, "RequestTooLarge", "request arena is full");
    }
    int r = identity_make_key(a, keys, n.account.id, n.user.name, &n.key, &n.secret, err);
    if (r == 0) {
        *ret = n;
    }
    return r;
}
