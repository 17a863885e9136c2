#include "awsgw/admin.h"

#include "awsgw/defaults.h"
#include "awsgw/txn.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "model/identity.h"
#include "model/keys.h"
#include "net/service_jobs.h"

#include <errno.h>

LOG_MODULE("awsgw.admin");

#define ADMIN_ARENA_MAX (16u << 20)

struct admin {
    struct service *svc;
    struct gw *gw;
    struct keys *keys;
    struct pool *pool;
    struct service_jobs jobs;
    struct rpc_server *server;
};

static struct admin *admin_of(const struct service_job *j)
{
    return j->ctx;
}

/* That the account's default network has been made, once: deleting the default VPC later must
 * not bring it back. */
static struct str defaults_key(struct arena *a, struct str account)
{
    return key_claim(a, "defaults", account, STR_NONE);
}

static void add_identity(struct txn *t, const struct identity_new *id)
{
    txn_create(t, key_account(t->a, id->account.id), &account_desc, &id->account);
    txn_create(t, key_user(t->a, id->account.id, id->user.name), &user_desc, &id->user);
    txn_create(t, key_access_key(t->a, id->key.id), &access_key_desc, &id->key);
    txn_claim(t, key_account_claim(t->a, id->account.name), id->account.id);
}

static int account_create(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct gw *gw = admin_of(j)->gw;
    struct identity_new id;
    struct str name = json_get_str(rq, "name");
    int r = identity_make_account(j->a, admin_of(j)->keys, name, &id, err);
    if (r < 0) {
        return r;
    }
    struct txn *t = arena_new_of(j->a, struct txn);
    txn_init(t, gw, j->a);
    add_identity(t, &id);
    defaults_add(t, id.account.id);
    txn_claim(t, defaults_key(j->a, id.account.id), id.account.id);
    if ((r = txn_commit(t, err)) < 0) {
        if (r == -EAGAIN) {
            err_clear(err);
            return fail(err, -EEXIST, "AccountNameInUse",
                        "an account named '%.*s' is there already", STR_ARG(name));
        }
        return r;
    }
    if ((r = identity_wait(gw->identity, kv_revision(gw->kv), 5 * NS_PER_S)) < 0) {
        return fail(err, r, "InternalError",
                    "the account was made, but this service does not see it yet");
    }
    jw_str(w, "account", id.account.id);
    jw_str(w, "name", id.account.name);
    jw_str(w, "user", id.user.name);
    jw_str(w, "access_key_id", id.key.id);
    jw_str(w, "secret_access_key", id.secret);
    log_info("account.created", KV_STR("account", id.account.id));
    return 0;
}

static int account_list(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct account_list l;
    int r = identity_list_accounts(admin_of(j)->gw->kv, j->a, &l, err);
    if (r < 0) {
        return r;
    }
    jw_arr(w, "accounts");
    for (size_t i = 0; i < l.n; i++) {
        jw_obj(w, NULL);
        jw_str(w, "account", l.v[i].id);
        jw_str(w, "name", l.v[i].name);
        jw_str(w, "status", l.v[i].status);
        jw_u64(w, "created_ns", l.v[i].create_ns);
        jw_obj_end(w);
    }
    jw_arr_end(w);
    return 0;
}

static int account_delete(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct str account = json_get_str(rq, "account");
    int r = identity_delete_account(admin_of(j)->gw->kv, account, err);
    if (r == 0) {
        log_info("account.deleted", KV_STR("account", account));
    }
    return r;
}

static int key_create(struct service_job *j, struct json *rq, struct jw *w, struct err *err)
{
    struct gw *gw = admin_of(j)->gw;
    struct str user = json_get_str(rq, "user");
    struct access_key key;
    struct str secret = STR_NONE;
    int r = identity_create_key(gw->kv, j->a, admin_of(j)->keys, json_get_str(rq, "account"),
                                user.n > 0 ? user : STR("admin"), &key, &secret, err);
    if (r < 0) {
        return r;
    }
    if ((r = identity_wait(gw->identity, kv_revision(gw->kv), 5 * NS_PER_S)) < 0) {
        return fail(err, r, "InternalError",
                    "the key was made, but this service does not see it yet");
    }
    jw_str(w, "access_key_id", key.id);
    jw_str(w, "secret_access_key", secret);
    log_info("key.created", KV_STR("account", key.account), KV_STR("key", key.id));
    return 0;
}

static const struct service_method methods[] = {
    {"account.create", account_create},
    {"account.list", account_list},
    {"account.delete", account_delete},
    {"key.create", key_create},
};

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct admin *ad = ctx;
    service_jobs_request(&ad->jobs, req, method, payload, fds, n_fds);
}

int admin_start(struct service *svc, struct gw *gw, struct keys *keys, struct pool *pool,
                struct admin **ret, struct err *err)
{
    static const struct rpc_server_ops ops = {.on_request = on_request};
    struct admin *ad = calloc(1, sizeof(*ad));
    AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
    if (!ad) {
        abort();
    }
    *ad = (struct admin){.svc = svc, .gw = gw, .keys = keys, .pool = pool};
    ad->jobs = (struct service_jobs){.svc = ad->svc,
                                     .pool = ad->pool,
                                     .name = "awsgw",
                                     .refusal = "only root may manage accounts",
                                     .arena_max = ADMIN_ARENA_MAX,
                                     .methods = methods,
                                     .n_methods = ARRAY_LEN(methods),
                                     .ctx = ad};
    int r = rpc_server_new(svc->loop, config_run_path(a, gw->cfg, "awsgw.sock"), 0666, &ops, ad,
                           &ad->server, err);
    if (r < 0) {
        free(ad);
        return r;
    }
    *ret = ad;
    return 0;
}

void admin_stop(struct admin *ad)
{
    if (ad) {
        rpc_server_free(ad->server);
        free(ad);
    }
}

static int ensure_one(struct gw *gw, struct str account, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(ADMIN_ARENA_MAX);
    struct kv_item it;
    struct err e = ERR_INIT;
    if (kv_get(gw->kv, a, defaults_key(a, account), &it, &e) == 0) {
        return 0;
    }
    struct txn *t = arena_new_of(a, struct txn);
    txn_init(t, gw, a);
    defaults_add(t, account);
    txn_claim(t, defaults_key(a, account), account);
    int r = txn_commit(t, err);
    if (r == -EAGAIN) {
        err_clear(err);
        return 0; /* somebody else did */
    }
    return r;
}

int admin_ensure_defaults(struct gw *gw, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(ADMIN_ARENA_MAX);
    struct account_list l;
    int r = identity_list_accounts(gw->kv, a, &l, err);
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        r = ensure_one(gw, l.v[i].id, err);
    }
    return r;
}
