#include "base/time.h"
#include "codec/json.h"
#include "model/identity.h"
#include "spx/admin.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/table.h"
#include <errno.h>
#include <stdio.h>

#define CALL_TIMEOUT (30 * NS_PER_S)

static struct str payload_of(struct spx *s, const char *name, const char *value)
{
    AUTO_BUF out;
    struct jw w;
    buf_init(&out, 4096);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_cstr(&w, name, value);
    jw_obj_end(&w);
    return arena_str_dup(s->arena, buf_str(&out));
}

static void print_json(const struct json *j)
{
    AUTO_BUF out;
    buf_init(&out, 1u << 20);
    json_dump(j, &out);
    printf("%s\n", buf_cstr(&out));
}

/* The answer of account.create and key.create: the one time that the secret is shown. */
static void print_key(struct spx *s, const struct json *j)
{
    static const char *const shown[] = {"account", "user", "access_key_id",
                                        "secret_access_key"};
    if (s->is_json) {
        print_json(j);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        struct str v = json_get_str(j, shown[i]);
        if (str_is_set(v)) {
            printf("%-18s %.*s\n", shown[i], STR_ARG(v));
        }
    }
}

static int maybe_profile(struct spx *s, const struct json *j, struct err *err)
{
    const char *name = spx_value(s, "--profile");
    return name ? admin_write_profile(s, name, json_get_str(j, "access_key_id"),
                                      json_get_str(j, "secret_access_key"), err)
                : 0;
}

int cmd_account_create(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = spx_call(s, "awsgw.sock", "account.create", payload_of(s, "name", s->pos[0]), -1,
                     CALL_TIMEOUT, &j, err);
    if (r < 0) {
        return r;
    }
    print_key(s, j);
    return maybe_profile(s, j, err);
}

int cmd_account_key(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = spx_call(s, "awsgw.sock", "key.create", payload_of(s, "account", s->pos[0]), -1,
                     CALL_TIMEOUT, &j, err);
    if (r < 0) {
        return r;
    }
    print_key(s, j);
    return maybe_profile(s, j, err);
}

/* Buckets are not the gateway's: the object store is asked. One that is silent may hold some. */
static int check_buckets(struct spx *s, const char *account, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = spx_config(s, err);
    if (r < 0 || !config_has_service(s->cfg, "predastore")) {
        return r;
    }
    r = spx_call(s, "predastore.sock", "bucket.list", payload_of(s, "account", account), -1,
                 CALL_TIMEOUT, &j, err);
    if (r < 0) {
        return err_context(err, r, "asking for its buckets");
    }
    const struct json *list = json_get(j, "buckets");
    if (json_len(list) == 0) {
        return 0;
    }
    struct str first = json_get_str(json_at(list, 0), "name");
    return fail(err, -ENOTEMPTY, "AccountNotEmpty",
                "account %s still has buckets, such as %.*s", account, STR_ARG(first));
}

int cmd_account_delete(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    if (!account_id_is_wellformed(str_c(s->pos[0]))) {
        return spx_usage_error(s, "'%s' is no account id (12 digits)", s->pos[0]);
    }
    int r = check_buckets(s, s->pos[0], err);
    r = r < 0 ? r
              : spx_call(s, "awsgw.sock", "account.delete", payload_of(s, "account", s->pos[0]),
                         -1, CALL_TIMEOUT, &j, err);
    if (r == 0 && s->is_json) {
        print_json(j);
    } else if (r == 0) {
        printf("account %s is gone\n", s->pos[0]);
    }
    return r;
}

int admin_find_key(struct kv *kv, struct arena *a, struct keys *keys, const char *account,
                   struct str *ret_account, struct str *ret_key, struct str *ret_secret,
                   struct err *err)
{
    struct account_list accounts = {0};
    struct access_key_list list = {0};
    const struct account *of = NULL;
    int r = identity_list_accounts(kv, a, &accounts, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < accounts.n; i++) {
        const struct account *x = &accounts.v[i];
        if (account ? str_eqc(x->id, account) || str_eqc(x->name, account)
                    : !of || x->create_ns < of->create_ns) {
            of = x;
        }
    }
    if (!of) {
        return fail(err, -ENOENT, "NoSuchAccount", "there is no account %s",
                    account ? account : "");
    }
    r = identity_list_keys(kv, a, of->id, &list, err);
    if (r < 0) {
        return r;
    }
    const struct access_key *k = NULL;
    for (size_t i = 0; i < list.n && !k; i++) {
        k = str_eqc(list.v[i].status, ACCESS_KEY_ACTIVE) ? &list.v[i] : NULL;
    }
    if (!k) {
        return fail(err, -ENOENT, "NoSuchKey", "account %.*s has no active access key",
                    STR_ARG(of->id));
    }
    AUTO_SECRET secret = SECRET_INIT;
    r = keys_unwrap(keys, arena_fmt(a, "access-key/%.*s", STR_ARG(k->id)), k->secret, &secret,
                    err);
    if (r == 0) {
        *ret_account = of->id;
        *ret_key = k->id;
        *ret_secret = arena_str_dup(a, secret_str(&secret));
    }
    return r;
}
