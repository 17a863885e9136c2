#include "base/file.h"
#include "model/identity.h"
#include "model/network.h"
#include "spx/admin.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/doctor.h"
#include "spx/host.h"
#include "spx/init_text.h"
#include "spx/prepare.h"
#include <errno.h>
#include <stdio.h>

#define MAX_TEXT (64u << 10)

static const char *or_default(const char *v, const char *dflt)
{
    return v ? v : dflt;
}

/* RFC 5737 gives three networks to examples; the first that this host is not in. */
static uint32_t free_example_net(void)
{
    static const uint32_t nets[] = {0xc6336400u /* 198.51.100.0 */,
                                    0xcb007100u /* 203.0.113.0 */, 0xc0000200u /* 192.0.2.0 */};
    for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
        if (!host_has_address_in(nets[i], 0xffffff00u)) {
            return nets[i];
        }
    }
    return nets[0];
}

static struct str_list name_servers(struct arena *a)
{
    static const char *const files[] = {"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTO_FREE char *text = NULL;
        size_t n = 0;
        if (file_read(files[i], MAX_TEXT, &text, &n, NULL) == 0) {
            struct str_list l = host_name_servers(a, text);
            if (l.n > 0) {
                return l;
            }
        }
    }
    return (struct str_list){0};
}

/* "A,B,C"; none is fine: the configuration has a default. */
static struct str_list list_drives(struct arena *a, const char *text)
{
    struct str_list l = {.v = arena_xalloc(a, (CONFIG_MAX_DRIVES + 1) * sizeof(struct str))};
    struct str rest = str_c(text ? text : ""), item = STR_NONE;
    while (text && l.n <= CONFIG_MAX_DRIVES && str_next(&rest, ',', &item)) {
        l.v[l.n++] = str_trim(item);
    }
    return l;
}

/* Fills the text of the configuration from the options; SPX_USAGE after a message. */
static int make_text(struct spx *s, struct buf *out)
{
    uint64_t nodes = 0, port = 0, s3_port = 0, metrics_port = 0, uid_base = 0;
    const char *drives = spx_value(s, "--drives");
    uint64_t default_base = geteuid() == 0 ? CONFIG_UID_BASE : 0;
    int r = spx_number(s, "--nodes", 1, 64, 1, &nodes);
    r = r ? r : spx_number(s, "--port", 1, 65535, 9999, &port);
    r = r ? r : spx_number(s, "--s3-port", 1, 65535, 8443, &s3_port);
    r = r ? r : spx_number(s, "--metrics-port", 0, 65535, 9998, &metrics_port);
    r = r ? r : spx_number(s, "--uid-base", 0, 2000000000, default_base, &uid_base);
    if (r) {
        return r;
    }
    if (nodes != 1) {
        return spx_usage_error(s, "--nodes is %u, but this version makes clouds of 1 node",
                               (unsigned)nodes);
    }
    struct str ip = host_main_ip(s->arena);
    const struct init_text t = {
        .node = or_default(spx_value(s, "--node"), "node1"),
        .host = or_default(spx_value(s, "--host"), arena_cstr(s->arena, ip)),
        .region = or_default(spx_value(s, "--region"), "ap-southeast-2"),
        .az = or_default(spx_value(s, "--az"), ""),
        .data_dir = or_default(spx_value(s, "--data-dir"), "/var/lib/spinifex"),
        .run_dir = or_default(spx_value(s, "--run-dir"), "/run/spinifex"),
        .uid_base = uid_base,
        .port = port,
        .s3_port = s3_port,
        .metrics_port = metrics_port,
        .drives = list_drives(s->arena, drives),
        .pool_net = free_example_net(),
        .dns_servers = name_servers(s->arena),
    };
    init_text(&t, out);
    return 0;
}

/* Reads the configuration that is there, or makes the text of one; nothing is written yet. */
static int take_config(struct spx *s, const char *path, struct buf *text, bool *ret_is_new,
                       struct err *err)
{
    bool is_there = access(path, F_OK) == 0;
    *ret_is_new = !is_there || spx_is_set(s, "--force");
    if (!*ret_is_new) {
        if (!s->is_json) {
            fprintf(stderr, "%s is there: its settings stay (--force writes it again)\n", path);
        }
        return config_load(path, &s->cfg, err);
    }
    int r = make_text(s, text);
    return r ? r : config_parse(arena_cstr(s->arena, str_c(path)), buf_str(text), &s->cfg, err);
}

static int make_root_key(struct spx *s, struct keys **ret, struct err *err)
{
    const struct config *c = s->cfg;
    const char *path = config_data_path(s->arena, c, DATA_ROOT_KEY);
    uid_t uid = c->uid_base ? (uid_t)(c->uid_base + CONFIG_UID_AWSGW) : (uid_t)-1;
    struct err e = ERR_INIT;
    int r = keys_create_file(path, uid, (gid_t)uid, &e);
    if (r < 0 && r != -EEXIST) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    return keys_open_file(path, ret, err);
}

/* The store is opened directly: spx-state does not run yet. Its own lock refuses us if it does.
 */
static int make_first_account(struct spx *s, struct keys *keys, struct str *ret_account,
                              struct str *ret_key, struct str *ret_secret, struct err *err)
{
    AUTO(kv_closep) struct kv *kv = NULL;
    struct account_list l = {0};
    int r = kv_open_sqlite(config_data_path(s->arena, s->cfg, DATA_STATE_DB), &kv, err);
    if (r < 0) {
        return r;
    }
    r = identity_list_accounts(kv, s->arena, &l, err);
    if (r < 0) {
        return r;
    }
    if (l.n > 0) {
        return admin_find_key(kv, s->arena, keys, NULL, ret_account, ret_key, ret_secret, err);
    }
    struct identity_new n;
    r = identity_create_account(kv, s->arena, keys,
                                str_c(or_default(spx_value(s, "--account"), "main")), &n, err);
    if (r == 0) {
        *ret_account = n.account.id;
        *ret_key = n.key.id;
        *ret_secret = n.secret;
    }
    return r;
}

static int write_config(const char *dir, const char *path, struct str text, struct err *err)
{
    int r = file_mkdirs(dir, 0755, err);
    return r < 0 ? r : file_write_atomic(path, text, 0644, err);
}

static void say_done(struct spx *s, const char *path, struct str account)
{
    if (s->is_json) {
        printf("{\"config\":\"%s\",\"account\":\"%.*s\"}\n", path, STR_ARG(account));
        return;
    }
    printf("node      %s\nconfig    %s\ndata      %s\naccount   %.*s\nendpoint  %s\nCA        "
           "%s\n",
           s->cfg->node, path, s->cfg->data_dir, STR_ARG(account), admin_endpoint(s),
           certs_ca_path(s->arena, s->cfg));
}

/* Before anything is made: what somebody else has already. */
static int check_clashes(struct spx *s, struct err *err)
{
    struct doctor d = {.a = s->arena, .root = ""};
    doctor_net(&d, s->cfg);
    for (size_t i = 0; i < d.n; i++) {
        if (d.v[i].state == DOCTOR_FAIL) {
            return fail(err, -EADDRINUSE, "Clash", "%.*s: %.*s", STR_ARG(d.v[i].what),
                        STR_ARG(d.v[i].cure));
        }
    }
    return 0;
}

int cmd_admin_init(struct spx *s, struct err *err)
{
    const char *dir = or_default(spx_value(s, "--config-dir"), "/etc/spinifex");
    const char *path = s->config_path
                           ? s->config_path
                           : arena_cstr(s->arena, arena_fmt(s->arena, "%s/spinifex.toml", dir));
    AUTO_BUF text;
    AUTO(keys_closep) struct keys *keys = NULL;
    struct str account = STR_NONE, key = STR_NONE, secret = STR_NONE;
    bool is_new = false;
    buf_init(&text, MAX_TEXT);
    int r = take_config(s, path, &text, &is_new, err);
    if (r) {
        return r;
    }
    r = s->cfg->uid_base ? spx_need_root(s, err) : 0;
    r = r < 0 || !is_new ? r : check_clashes(s, err);
    r = r < 0 ? r : prepare_dirs(s, err);
    /* The authority's certificate lies beside the configuration. */
    r = r < 0 ? r : file_mkdirs(dir, 0755, err);
    r = r < 0 ? r : prepare_certs(s, err);
    r = r < 0 ? r : make_root_key(s, &keys, err);
    r = r < 0 ? r : prepare_keys(s, err);
    r = r < 0 ? r : make_first_account(s, keys, &account, &key, &secret, err);
    r = r < 0 ? r : dirs_give(s->cfg, "state", CONFIG_UID_STATE, err);
    /* The configuration comes last: with it the node counts as initialised. */
    r = r < 0 || !is_new ? r : write_config(dir, path, buf_str(&text), err);
    if (r < 0) {
        return r;
    }
    say_done(s, path, account);
    return spx_is_set(s, "--no-profile") ? 0
                                         : admin_write_profile(s, "spinifex", key, secret, err);
}
