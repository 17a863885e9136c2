#include "snap/tests/snap_world.h"

#include "base/file.h"
#include "base/rand.h"
#include "base/vec.h"
#include "codec/hex.h"
#include "crypto/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

/* ---- services ---- */

static void run(const char *const argv[])
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static struct daemon *start(struct world *w, const char *exe, const char *log,
                            const char *socket)
{
    char log_path[PATH_MAX], health[PATH_MAX];
    struct err e = ERR_INIT;
    struct daemon *d = NULL;
    const char *argv[] = {exe, "--config", w->config, NULL};
    const struct daemon_opts o = {.argv = argv,
                                  .log_path = tmpdir_path(&w->dir, log, log_path),
                                  .health_socket = tmpdir_path(&w->dir, socket, health)};
    if (daemon_start(&o, &d, &e) < 0) {
        fail_msg("%s: %s", exe, e.msg);
    }
    return d;
}

void world_init(struct world *w, char **argv)
{
    char etc[PATH_MAX], data[PATH_MAX], run_dir[PATH_MAX], port[8], s3_port[8];
    struct err e = ERR_INIT;
    unsigned p = 12000 + (unsigned)(rand_u64() % 9000) * 2;
    *w = (struct world){.state = NULL};
    tmpdir_init(&w->dir, "snap");
    tmpdir_path(&w->dir, "etc", etc);
    tmpdir_path(&w->dir, "data", data);
    tmpdir_path(&w->dir, "run", run_dir);
    tmpdir_path(&w->dir, "etc/spinifex.toml", w->config);
    tmpdir_path(&w->dir, "run/predastore-s3.sock", w->sock);
    tmpdir_path(&w->dir, "pending", w->pending);
    tmpdir_path(&w->dir, "root.key", w->key);
    snprintf(port, sizeof(port), "%u", p);
    snprintf(s3_port, sizeof(s3_port), "%u", p + 1);
    const char *const init[] = {
        argv[1], "admin",        "init",      "--node",     "node1", "--nodes",
        "1",     "--config-dir", etc,         "--data-dir", data,    "--run-dir",
        run_dir, "--host",       "127.0.0.1", "--port",     port,    "--s3-port",
        s3_port, "--region",     "eu-1",      "--uid-base", "0",     "--no-profile",
        NULL};
    run(init);
    w->state = start(w, argv[2], "state.log", "run/state.sock");
    w->store = start(w, argv[3], "predastore.log", "run/predastore.sock");
    assert_int_equal(keys_create_file(w->key, (uid_t)-1, (gid_t)-1, &e), 0);
    assert_int_equal(keys_open_file_or_wait(w->key, &w->keys, &e), 0);
    const struct snap_s3_opts so = {.socket = w->sock, .bucket = ".viperblock", .n_conns = 2};
    w->s3 = snap_s3_new(&so);
    w->opts = (struct snap_opts){
        .socket = w->sock, .bucket = ".viperblock", .pending_dir = w->pending, .keys = w->keys};
    w->buf = malloc(SNAP_BLOCK);
    assert_non_null(w->buf);
    world_reopen(w);
}

void world_reopen(struct world *w)
{
    struct err e = ERR_INIT;
    snap_close(w->snap);
    w->snap = NULL;
    if (snap_open(&w->opts, &w->snap, &e) < 0) {
        fail_msg("%s", e.msg);
    }
}

void world_done(struct world *w)
{
    snap_close(w->snap);
    snap_s3_free(w->s3);
    keys_close(w->keys);
    free(w->buf);
    if (w->store) {
        assert_int_equal(daemon_stop(w->store, UINT64_C(20000000000)), 0);
    }
    daemon_free(w->store);
    daemon_free(w->state);
    tmpdir_done(&w->dir);
}

void world_fill(uint32_t what, void *p)
{
    uint64_t *v = p;
    for (size_t i = 0; i < SNAP_BLOCK / 8; i++) {
        v[i] = what ? (uint64_t)what << 32 | (uint32_t)i : 0;
    }
}

/* ---- the oracle ---- */

void oracle_init(struct oracle *o, const char *account)
{
    *o = (struct oracle){.has_keys = false};
    snprintf(o->account, sizeof(o->account), "%s", account);
}

void oracle_done(struct oracle *o)
{
    for (size_t i = 0; i < ORACLE_SNAPS; i++) {
        vec_free(&o->snaps[i].logged);
    }
}

struct oracle_snap *oracle_new(struct oracle *o, const struct oracle_snap *parent, bool is_enc,
                               uint32_t n_blocks)
{
    static unsigned serial;
    for (size_t i = 0; i < ORACLE_SNAPS; i++) {
        struct oracle_snap *x = &o->snaps[i];
        if (x->state == O_NONE) {
            vec_free(&x->logged);
            *x = (struct oracle_snap){
                .state = O_PENDING, .is_encrypted = is_enc, .n_blocks = n_blocks};
            snprintf(x->id, sizeof(x->id), "snap-%08x", ++serial);
            if (parent) {
                memcpy(x->base, parent->blocks, sizeof(x->base));
                memcpy(x->blocks, parent->blocks, sizeof(x->blocks));
            }
            x->info = (struct snap_info){.size = (uint64_t)n_blocks * SNAP_BLOCK,
                                         .is_encrypted = is_enc};
            memcpy(x->info.id, x->id, sizeof(x->info.id));
            memcpy(x->info.account, o->account, sizeof(x->info.account));
            if (parent) {
                memcpy(x->info.parent, parent->id, sizeof(x->info.parent));
            }
            o->has_keys |= is_enc;
            return x;
        }
    }
    return NULL;
}

void oracle_put(struct oracle_snap *x, uint32_t block, uint32_t what)
{
    x->blocks[block] = what;
    x->is_put[block] = 1;
    vec_push(&x->logged, what);
}

/* Names by another road than the code under test. */
static void name_of(struct world *w, const struct oracle *o, bool is_enc, uint32_t what,
                    uint8_t ret[SNAP_NAME])
{
    memset(ret, 0, SNAP_NAME);
    if (what) {
        world_fill(what, w->buf);
        struct str text = str_n(w->buf, SNAP_BLOCK);
        if (is_enc) {
            struct snap_keys_pair k;
            assert_int_equal(snap_keys_get(w->snap, str_c(o->account), false, &k, NULL), 0);
            hmac_sha256(str_n((const char *)k.name, 32), text, ret);
        } else {
            sha256(text, ret);
        }
    }
}

static void want(struct omap *m, const char *key, uint64_t size)
{
    omap_put(m, str_c(key), (void *)(uintptr_t)(size + 1));
}

static void want_name(struct omap *m, const struct oracle *o, char kind,
                      const uint8_t name[SNAP_NAME], uint64_t size)
{
    char hex[65], key[SNAP_KEY_MAX];
    hex_encode_to(name, SNAP_NAME, hex);
    snprintf(key, sizeof(key), "%c/%s/%s", kind, o->account, hex);
    want(m, key, size);
}

static void want_page(struct world *w, const struct oracle *o, struct omap *m, bool is_enc,
                      const uint32_t *blocks, uint32_t first)
{
    uint8_t page[8 + 128 + 1024 * 32] = {'S', 'P', 'X', 'P', 1}, name[SNAP_NAME];
    size_t n = 8 + 128;
    for (uint32_t i = 0; i < 1024 && first + i < ORACLE_BLOCKS; i++) {
        if (blocks[first + i]) {
            name_of(w, o, is_enc, blocks[first + i], page + n);
            want_name(m, o, 'b', page + n, is_enc ? SNAP_BLOCK + 28 : SNAP_BLOCK);
            page[8 + i / 8] = (uint8_t)(page[8 + i / 8] | 1u << i % 8);
            n += 32;
        }
    }
    if (n > 8 + 128) {
        sha256(str_n((const char *)page, n), name);
        want_name(m, o, 'p', name, n);
    }
}

static void want_snap(struct world *w, const struct oracle *o, struct omap *m,
                      const struct oracle_snap *x)
{
    char key[SNAP_KEY_MAX];
    const uint32_t *blocks = x->state == O_PENDING ? x->base : x->blocks;
    for (uint32_t first = 0; first < x->n_blocks; first += 1024) {
        want_page(w, o, m, x->is_encrypted, blocks, first);
    }
    for (size_t i = 0; x->state == O_PENDING && i < x->logged.n; i++) {
        uint8_t name[SNAP_NAME];
        name_of(w, o, x->is_encrypted, x->logged.v[i], name);
        if (x->logged.v[i]) {
            want_name(m, o, 'b', name, x->is_encrypted ? SNAP_BLOCK + 28 : SNAP_BLOCK);
        }
    }
    if (x->state != O_PENDING) {
        snprintf(key, sizeof(key), "%c/%s/%s", x->state == O_KEPT ? 'r' : 'm', o->account,
                 x->id);
        want(m, key, 128 + 36 * ((x->n_blocks + 1023) / 1024) + 32);
    }
}

static void check_kind(struct world *w, const struct oracle *o, struct omap *m, char kind)
{
    char prefix[SNAP_KEY_MAX], after[SNAP_KEY_MAX] = "";
    struct snap_s3_item *items = calloc(SNAP_S3_LIST_MAX, sizeof(*items));
    size_t n = 0;
    bool is_more = true;
    assert_non_null(items);
    snprintf(prefix, sizeof(prefix), "%c/%s%s", kind, o->account, kind == 'k' ? "" : "/");
    while (is_more) {
        struct err e = ERR_INIT;
        if (snap_s3_list(w->s3, prefix, after, false, items, &n, &is_more, &e) < 0) {
            fail_msg("%s", e.msg);
        }
        for (size_t i = 0; i < n; i++) {
            uintptr_t size = (uintptr_t)omap_remove(m, str_c(items[i].key));
            if (size == 0) {
                fail_msg("%s is there, and nothing needs it", items[i].key);
            }
            if (kind != 'k' && size != items[i].size + 1) {
                fail_msg("%s has %llu bytes", items[i].key, (unsigned long long)items[i].size);
            }
            snprintf(after, sizeof(after), "%s", items[i].key);
        }
    }
    free(items);
}

void oracle_check_keys(struct world *w, const struct oracle *o)
{
    char key[SNAP_KEY_MAX];
    struct omap *m = omap_new();
    for (size_t i = 0; i < ORACLE_SNAPS; i++) {
        if (o->snaps[i].state != O_NONE) {
            want_snap(w, o, m, &o->snaps[i]);
        }
    }
    if (o->has_keys) {
        snprintf(key, sizeof(key), "k/%s", o->account);
        want(m, key, 0);
    }
    for (const char *k = "bpmrk"; *k; k++) {
        check_kind(w, o, m, *k);
    }
    struct omap_node *left = omap_seek(m, STR(""));
    if (left) {
        fail_msg("%.*s is needed, and not there", STR_ARG(omap_key(left)));
    }
    omap_free(m, NULL);
}

void oracle_check_snap(struct world *w, const struct oracle *o, const struct oracle_snap *x)
{
    struct str account = str_c(o->account), id = str_c(x->id);
    uint8_t(*names)[SNAP_NAME] = calloc(x->n_blocks + 1, SNAP_NAME);
    uint8_t name[SNAP_NAME];
    uint64_t at = 0;
    struct err e = ERR_INIT;
    char *want_bytes = malloc(SNAP_BLOCK);
    if (snap_names(w->snap, account, id, 0, x->n_blocks, names, &e) < 0) {
        fail_msg("%s: %s", x->id, e.msg);
    }
    assert_non_null(want_bytes);
    for (uint32_t i = 0; i < x->n_blocks; i++) {
        name_of(w, o, x->is_encrypted, x->blocks[i], name);
        assert_memory_equal(names[i], name, SNAP_NAME);
        if (!x->blocks[i]) {
            continue;
        }
        assert_int_equal(snap_next(w->snap, account, id, STR_NONE, STR_NONE, at, &at, &e), 0);
        assert_int_equal(at, i);
        at++;
        if (snap_get(w->snap, account, id, i, w->buf, &e) != 0) {
            fail_msg("%s block %u: %s", x->id, i, e.msg);
        }
        world_fill(x->blocks[i], want_bytes);
        assert_memory_equal(w->buf, want_bytes, SNAP_BLOCK);
    }
    assert_int_equal(snap_next(w->snap, account, id, STR_NONE, STR_NONE, at, &at, &e), 0);
    assert_true(at == UINT64_MAX);
    free(want_bytes);
    free(names);
}
