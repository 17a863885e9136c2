/* spx-state as it runs: a real process, its store in a folder of the test. argv[1] is the executable. */
#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "base/buf.h"
#include "base/time.h"
#include "codec/json.h"
#include "kv/kv_proto.h"
#include "kv/view.h"
#include "net/rpc.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#define WAIT_NS (20 * NS_PER_S)

static const char *exe;

struct world {
    struct tmpdir dir;
    char sock[PATH_MAX], config[PATH_MAX], log[PATH_MAX];
    const char *argv[4];
    struct daemon *d;
};

static void world_init(struct world *w)
{
    char text[512], data[PATH_MAX];
    tmpdir_init(&w->dir, "state");
    tmpdir_path(&w->dir, "state.sock", w->sock);
    tmpdir_path(&w->dir, "state.log", w->log);
    tmpdir_path(&w->dir, "data", data);
    snprintf(text, sizeof(text),
             "version = 4\nnode = \"n\"\n[nodes.n]\nuid_base = 0\ndata_dir = \"%.150s\"\n"
             "run_dir = \"%.150s\"\n",
             data, w->dir.path);
    tmpdir_write(&w->dir, "spinifex.toml", text, w->config);
    w->argv[0] = exe;
    w->argv[1] = "--config";
    w->argv[2] = w->config;
    w->argv[3] = NULL;
    struct daemon_opts o = {.argv = w->argv, .log_path = w->log, .health_socket = w->sock};
    struct err err = ERR_INIT;
    if (daemon_start(&o, &w->d, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static void world_done(struct world *w)
{
    daemon_free(w->d);
    tmpdir_done(&w->dir);
}

static struct kv *open_as(const struct world *w, const char *service)
{
    struct kv *kv = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_remote_as(w->sock, service, &kv, &err), 0);
    return kv;
}

static int put(struct kv *kv, const char *key, const char *value, struct err *err)
{
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    return kv_txn(kv, NULL, 0, &op, 1, NULL, err);
}

static bool has(struct kv *kv, const char *key, const char *value)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    return kv_get(kv, a, str_c(key), &item, NULL) == 0 && str_eqc(item.value, value);
}

static void test_contract(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = open_as(&w, "admin");
    kv_contract(kv);
    kv_close(kv);
    assert_int_equal(daemon_stop(w.d, WAIT_NS), 0);
    world_done(&w);
}

/* ---- kill -9 under load ---- */

enum { N_WRITERS = 6, N_KILLS = 5 };

/* Each writer counts its own key up and keeps a ledger: what was acknowledged must be there afterwards, and nothing that was
 * never asked for. */
struct writer {
    struct kv *kv;
    pthread_t thread;
    int idx;
    unsigned acked, asked; /* atomic */
    bool is_stopping;      /* atomic */
    unsigned n_interrupted, n_unavailable;
    char failure[200];
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    char key[32], value[32];
    snprintf(key, sizeof(key), "crash/%d", w->idx);
    while (!__atomic_load_n(&w->is_stopping, __ATOMIC_SEQ_CST)) {
        struct err err = ERR_INIT;
        unsigned n = w->asked + 1;
        snprintf(value, sizeof(value), "%u", n);
        __atomic_store_n(&w->asked, n, __ATOMIC_SEQ_CST);
        int r = put(w->kv, key, value, &err);
        if (r == 0) {
            __atomic_store_n(&w->acked, n, __ATOMIC_SEQ_CST);
        } else if (r == -ECONNRESET) {
            w->n_interrupted++;
        } else if (r == -ENOTCONN) {
            w->n_unavailable++;
        } else {
            snprintf(w->failure, sizeof(w->failure), "%d %.100s", r, err.msg);
            return NULL;
        }
    }
    return NULL;
}

/* What a watch saw, checked as it comes: revisions ascend, values of a key ascend, no change twice. */
struct follower {
    pthread_mutex_t mu;
    unsigned last[N_WRITERS];
    uint64_t at, n_puts, n_resets, sync_rev;
    unsigned n_bad;
};

static void on_follow(void *ctx, const struct kv_event *ev)
{
    struct follower *f = ctx;
    pthread_mutex_lock(&f->mu);
    if (ev->type == KV_EVENT_PUT) {
        unsigned idx = (unsigned)(ev->item.key.p[ev->item.key.n - 1] - '0'), n = 0;
        for (size_t i = 0; i < ev->item.value.n; i++) {
            n = n * 10 + (unsigned)(ev->item.value.p[i] - '0');
        }
        f->n_bad += ev->item.mod_rev <= f->at || idx >= N_WRITERS || n <= f->last[idx];
        f->at = ev->item.mod_rev;
        f->last[idx] = n;
        f->n_puts++;
    } else if (ev->type == KV_EVENT_SYNC) {
        f->sync_rev = ev->item.mod_rev;
    } else if (ev->type == KV_EVENT_RESET) {
        f->n_resets++;
    }
    pthread_mutex_unlock(&f->mu);
}

static void wait_sync(struct follower *f, uint64_t rev)
{
    uint64_t end = time_mono_ns() + WAIT_NS;
    for (bool is_there = false; !is_there;) {
        pthread_mutex_lock(&f->mu);
        is_there = f->sync_rev >= rev;
        pthread_mutex_unlock(&f->mu);
        assert_true(is_there || time_mono_ns() < end);
        usleep(2000);
    }
}

static void check_ledger(struct kv *kv, const struct writer *w)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    struct kv_item item = {0};
    char key[32];
    snprintf(key, sizeof(key), "crash/%d", w->idx);
    if (kv_get(kv, a, str_c(key), &item, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    unsigned n = 0;
    for (size_t i = 0; i < item.value.n; i++) {
        n = n * 10 + (unsigned)(item.value.p[i] - '0');
    }
    assert_true(n >= w->acked);
    assert_true(n <= w->asked);
}

static void test_kill(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    static struct writer writers[N_WRITERS];
    struct kv *kv = open_as(&w, "admin");
    struct follower f = {0};
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    pthread_mutex_init(&f.mu, NULL);
    kv_test_put(kv, "crash/0", "0");
    uint64_t from = kv_revision(kv);
    assert_int_equal(kv_watch_start(kv, STR("crash/"), from, on_follow, &f, &watch, &err), 0);
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (struct writer){.kv = i % 2 ? kv : open_as(&w, "admin"), .idx = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]), 0);
    }
    for (int i = 0; i < N_KILLS; i++) {
        usleep(150000 + (unsigned)i * 37000);
        daemon_kill(w.d);
        err_clear(&err);
        if (daemon_restart(w.d, &err) < 0) {
            fail_msg("%s", err.msg);
        }
    }
    usleep(200000);
    unsigned n_acked = 0, n_interrupted = 0;
    for (int i = 0; i < N_WRITERS; i++) {
        __atomic_store_n(&writers[i].is_stopping, true, __ATOMIC_SEQ_CST);
        pthread_join(writers[i].thread, NULL);
        assert_string_equal(writers[i].failure, "");
        n_acked += writers[i].acked;
        n_interrupted += writers[i].n_interrupted;
    }
    for (int i = 0; i < N_WRITERS; i++) {
        check_ledger(kv, &writers[i]);
    }
    uint64_t last = kv_test_put(kv, "other", "x");
    wait_sync(&f, last);
    print_message("  %d kills, about %u writes acknowledged, %u interrupted, %llu watched\n",
                  N_KILLS, n_acked, n_interrupted, (unsigned long long)f.n_puts);
    assert_int_equal(f.n_bad, 0);
    assert_int_equal(f.n_resets, 0); /* resumed, not listed anew */
    assert_int_equal(f.n_puts,
                     last - 1 -
                         from); /* every revision between was one put: none lost, none twice */
    assert_true(n_interrupted > 0);
    kv_watch_stop(watch);
    for (int i = 0; i < N_WRITERS; i += 2) {
        kv_close(writers[i].kv);
    }
    kv_close(kv);
    pthread_mutex_destroy(&f.mu);
    world_done(&w);
}

/* A service that starts before the store, and one that lives longer than it. */
static void test_absent(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    daemon_kill(w.d);
    struct kv *kv = open_as(&w, "admin");
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    uint64_t start = time_mono_ns();
    assert_int_equal(kv_watch_start(kv, STR(""), 0, kv_recorder_fn, rec, &watch, &err), 0);
    assert_true(time_mono_ns() - start < 5 * NS_PER_S);
    assert_int_equal(daemon_restart(w.d, &err), 0);
    uint64_t rev = kv_test_put(kv, "a", "1");
    kv_recorder_wait(rec, rev);
    daemon_kill(w.d);
    start = time_mono_ns();
    kv_watch_stop(watch);
    kv_close(kv); /* does not wait for one that is dead */
    assert_true(time_mono_ns() - start < 5 * NS_PER_S);
    kv_recorder_free(rec);
    world_done(&w);
}

/* It stands still for a while: answers that come too late must not make a hole. */
static void test_stalled(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = open_as(&w, "admin"), *other = open_as(&w, "admin");
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    uint64_t rev = kv_test_put(other, "a", "0");
    assert_int_equal(kv_watch_start(kv, STR("a"), rev, kv_recorder_fn, rec, &watch, &err), 0);
    kv_recorder_wait(rec, rev);
    daemon_signal(w.d, SIGSTOP);
    int r = put(other, "a", "1", &err); /* 15 s */
    assert_int_equal(r, -ECONNRESET);
    assert_string_equal(err.name, "Interrupted");
    usleep(11000000); /* longer than a request for events is waited for */
    daemon_signal(w.d, SIGCONT);
    for (int i = 2; i < 6; i++) {
        char value[8];
        snprintf(value, sizeof(value), "%d", i);
        rev = kv_test_put(other, "a", value);
    }
    kv_recorder_wait(rec, rev);
    char flat[200] = "";
    for (size_t i = 0; i < kv_recorder_n(rec); i++) {
        struct kv_seen s = kv_recorder_at(rec, i);
        if (s.type == KV_EVENT_PUT) {
            snprintf(flat + strlen(flat), sizeof(flat) - strlen(flat), "%s ", s.value);
        }
    }
    assert_string_equal(flat, "1 2 3 4 5 ");
    kv_watch_stop(watch);
    kv_close(other);
    kv_close(kv);
    kv_recorder_free(rec);
    world_done(&w);
}

/* ---- rights, over the wire ---- */

static void test_rights(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct kv *awsgw = open_as(&w, "awsgw"), *compute = open_as(&w, "compute"),
              *stranger = open_as(&w, "nobody");
    struct err err = ERR_INIT;
    struct kv_item item = {0};
    struct kv_list list = {0};
    struct kv_watch *watch = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    assert_int_equal(put(awsgw, "spec/instance/1/i-1", "{}", &err), 0);
    assert_int_equal(put(awsgw, "iam/key/AKIA", "{}", &err), 0);
    assert_int_equal(put(compute, "status/instance/1/i-1", "{}", &err), 0);
    assert_int_equal(put(compute, "spec/instance/1/i-1", "{}", &err), -EPERM);
    assert_string_equal(err.name, "AccessDenied");
    err_clear(&err);
    assert_int_equal(put(awsgw, "status/instance/1/i-1", "{}", &err), -EPERM);
    err_clear(&err);
    /* one forbidden operation: nothing of it is done */
    struct kv_op op[2] = {
        {.type = KV_PUT, .key = STR("status/instance/1/i-2"), .value = STR("{}")},
        {.type = KV_DELETE, .key = STR("spec/instance/1/i-1")}};
    assert_int_equal(kv_txn(compute, NULL, 0, op, 2, NULL, &err), -EPERM);
    err_clear(&err);
    assert_false(has(compute, "status/instance/1/i-2", "{}"));
    struct kv_op gone = {.type = KV_DELETE, .key = STR("status/instance/1/i-1")};
    assert_int_equal(kv_txn(awsgw, NULL, 0, &gone, 1, NULL, &err), 0); /* delete only */
    assert_true(has(compute, "spec/instance/1/i-1", "{}"));
    /* secrets: by key, by list, by compare, by watch */
    assert_int_equal(kv_get(compute, a, STR("iam/key/AKIA"), &item, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(kv_list(compute, a, STR("iam/"), STR_NONE, 0, &list, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(kv_list(awsgw, a, STR("iam/"), STR_NONE, 0, &list, &err), 0);
    assert_int_equal(list.n, 1);
    struct kv_cmp cmp = {STR("iam/key/AKIA"), 0};
    assert_int_equal(kv_txn(compute, &cmp, 1, NULL, 0, NULL, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(kv_watch_start(compute, STR(""), 0, kv_recorder_fn, rec, &watch, &err),
                     -EPERM);
    assert_string_equal(err.name, "AccessDenied");
    err_clear(&err);
    /* leases of others */
    uint64_t lease = 0;
    assert_int_equal(kv_lease_grant(compute, 60, &lease, &err), 0);
    assert_int_equal(kv_lease_keepalive(compute, lease, &err), 0);
    assert_int_equal(kv_lease_revoke(awsgw, lease, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(kv_lease_keepalive(awsgw, lease, &err), -EPERM);
    err_clear(&err);
    struct kv_op on = {.type = KV_PUT, .key = STR("spec/x"), .value = STR("1"), .lease = lease};
    assert_int_equal(kv_txn(awsgw, NULL, 0, &on, 1, NULL, &err), -EPERM);
    err_clear(&err);
    /* a name that is no service */
    assert_int_equal(kv_get(stranger, a, STR("spec/instance/1/i-1"), &item, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(
        kv_watch_start(stranger, STR("spec/"), 0, kv_recorder_fn, rec, &watch, &err), -EPERM);
    assert_int_equal(kv_recorder_n(rec), 0);
    kv_recorder_free(rec);
    kv_close(stranger);
    kv_close(compute);
    kv_close(awsgw);
    world_done(&w);
}

/* ---- the person who must look ---- */

static int ask(const struct world *w, const char *method, const char *payload, int fd,
               char **ret, struct err *err)
{
    struct rpc_client *c = rpc_client_new(w->sock, NULL, NULL);
    struct rpc_reply reply;
    int r =
        rpc_call(c, str_c(method), str_c(payload), &fd, fd >= 0 ? 1 : 0, WAIT_NS, &reply, err);
    if (r == 0) {
        *ret = strndup(reply.payload, reply.n);
        rpc_reply_done(&reply);
    }
    rpc_client_free(c);
    return r;
}

static void fill(struct kv *kv)
{
    struct err err = ERR_INIT;
    char big[20000];
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (char)i;
    }
    for (int i = 0; i < 2500; i += 125) { /* more than a page */
        struct kv_op op[125];
        char key[125][24];
        for (int k = 0; k < 125; k++) {
            snprintf(key[k], sizeof(key[k]), "d/%05d\xff", i + k);
            op[k] = (struct kv_op){
                .type = KV_PUT, .key = str_c(key[k]), .value = str_n(big, (size_t)(i + k))};
        }
        assert_int_equal(kv_txn(kv, NULL, 0, op, 125, NULL, &err), 0);
    }
    kv_test_put(kv, "text/\xc3\xa9", "{\"a\":\"\xc3\xa9\n\"}");
    kv_test_put(kv, "empty", "");
}

static void assert_filled(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(64 << 20);
    struct err err = ERR_INIT;
    size_t n = 0;
    struct kv_list list = {.has_more = true};
    for (struct str after = STR_NONE; list.has_more; after = list.v[list.n - 1].key) {
        assert_int_equal(kv_list(kv, a, STR("d/"), after, 0, &list, &err), 0);
        for (size_t i = 0; i < list.n; i++, n++) {
            assert_int_equal(list.v[i].value.n, n);
            for (size_t k = 0; k < n; k++) {
                assert_true(list.v[i].value.p[k] == (char)k);
            }
        }
    }
    assert_int_equal(n, 2500);
    assert_true(has(kv, "text/\xc3\xa9", "{\"a\":\"\xc3\xa9\n\"}"));
    assert_true(has(kv, "empty", ""));
}

static void copy_head(int to, int from, off_t n)
{
    char page[4096];
    for (off_t off = 0; off < n;) {
        ssize_t k = pread(from, page, (size_t)MIN((off_t)sizeof(page), n - off), off);
        assert_true(k > 0 && pwrite(to, page, (size_t)k, off) == k);
        off += k;
    }
}

static void test_dump_restore(void **state)
{
    (void)state;
    struct world w, fresh;
    world_init(&w);
    world_init(&fresh);
    struct err err = ERR_INIT;
    char path[PATH_MAX];
    char *answer = NULL;
    struct kv *kv = open_as(&w, "admin"), *kv2 = open_as(&fresh, "admin");
    fill(kv);
    uint64_t lease = 0;
    assert_int_equal(kv_lease_grant(kv, 60, &lease, &err), 0);
    struct kv_op leased = {
        .type = KV_PUT, .key = STR("leased"), .value = STR("1"), .lease = lease};
    assert_int_equal(kv_txn(kv, NULL, 0, &leased, 1, NULL, &err), 0);
    AUTO_FD fd = open(tmpdir_path(&w.dir, "dump", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ask(&w, "dump", "", -1, &answer, &err), -EINVAL);
    assert_string_equal(err.name, "NoDescriptor");
    err_clear(&err);
    assert_int_equal(ask(&w, "dump", "", fd, &answer, &err), 0);
    assert_non_null(strstr(answer, "\"keys\":2503"));
    free(answer);
    /* refused: not empty */
    assert_int_equal(ask(&w, "restore", "{}", fd, &answer, &err), -EEXIST);
    assert_string_equal(err.name, "StoreNotEmpty");
    err_clear(&err);
    /* damaged in any way: nothing is changed */
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    off_t cuts[] = {0, 10, st.st_size / 2, st.st_size - 2, st.st_size - 1};
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        char cut_path[PATH_MAX];
        AUTO_FD cut = open(tmpdir_path(&w.dir, "cut", cut_path),
                           O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        copy_head(cut, fd, cuts[i]);
        assert_int_equal(ask(&fresh, "restore", "{}", cut, &answer, &err), -EINVAL);
        assert_string_equal(err.name, "BadDump");
        err_clear(&err);
    }
    assert_int_equal(kv_test_delete(kv2, "x"), 0); /* still at revision 0 */
    assert_int_equal(ask(&fresh, "restore", "{}", fd, &answer, &err), 0);
    assert_non_null(strstr(answer, "\"keys\":2502"));
    free(answer);
    assert_filled(kv2);
    assert_false(has(kv2, "leased", "1"));
    /* forced, under a watch that was there before */
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    kv_test_put(kv2, "later", "1");
    assert_int_equal(kv_watch_start(kv2, STR(""), 0, kv_recorder_fn, rec, &watch, &err), 0);
    kv_recorder_wait(rec, kv_revision(kv2));
    kv_recorder_clear(rec);
    assert_int_equal(ask(&fresh, "restore", "{\"is_forced\":true}", fd, &answer, &err), 0);
    free(answer);
    kv_recorder_wait_reset(rec);
    assert_false(has(kv2, "later", "1"));
    assert_filled(kv2);
    kv_watch_stop(watch);
    kv_recorder_free(rec);
    kv_close(kv2);
    kv_close(kv);
    world_done(&fresh);
    world_done(&w);
}

static void test_admin(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct err err = ERR_INIT;
    char *answer = NULL;
    struct kv *kv = open_as(&w, "admin");
    for (int i = 0; i < 10; i++) {
        kv_test_put(kv, "a", "1");
    }
    assert_int_equal(ask(&w, "stats", "", -1, &answer, &err), 0);
    AUTO(json_freep) struct json *j = NULL;
    assert_int_equal(json_parse(str_c(answer), &j, &err), 0);
    assert_int_equal(json_get_u64(j, "revision", 0), 10);
    assert_int_equal(json_get_u64(j, "history_events", 0), 10);
    assert_false(json_get_bool(j, "is_failing", true));
    free(answer);
    assert_int_equal(ask(&w, "compact", "{\"keep\":2}", -1, &answer, &err), 0);
    free(answer);
    json_free(j);
    assert_int_equal(ask(&w, "stats", "", -1, &answer, &err), 0);
    assert_int_equal(json_parse(str_c(answer), &j, &err), 0);
    assert_int_equal(json_get_u64(j, "history_events", 0), 2);
    assert_int_equal(json_get_u64(j, "compact_revision", 0), 8);
    free(answer);
    assert_int_equal(ask(&w, "nonsense", "", -1, &answer, &err), -EPROTO); /* who asks? */
    err_clear(&err);
    assert_int_equal(ask(&w, "compact", "{", -1, &answer, &err), -EINVAL);
    kv_close(kv);
    world_done(&w);
}

/* ---- a peer that speaks nonsense ---- */

static void test_bad_messages(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    static const char *const methods[] = {
        "hello",           "get",          "list",        "txn",        "lease.grant",
        "lease.keepalive", "lease.revoke", "watch.start", "watch.stop", "events"};
    struct rpc_client *c = rpc_client_new(w.sock, NULL, NULL);
    AUTO_BUF hello;
    buf_init(&hello, 100);
    kvp_put_hello(&hello, &(struct kvp_hello){KVP_VERSION, STR("admin")});
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        static const struct str junk[] = {{"", 0},
                                          {"\xff\xff\xff\xff", 4},
                                          {"\0\0\0\0\0", 5},
                                          {"\x01\0\0\0\xff\xff\xff\x7f", 8},
                                          {"aaaaaaaaaaaaaaaaaaaaaaaaaaa", 27}};
        for (size_t k = 0; k < ARRAY_LEN(junk); k++) {
            struct err err = ERR_INIT;
            assert_int_equal(
                rpc_call(c, STR("hello"), buf_str(&hello), NULL, 0, WAIT_NS, NULL, &err), 0);
            int r = rpc_call(c, str_c(methods[i]), junk[k], NULL, 0, WAIT_NS, NULL, &err);
            assert_true(r < 0);
            assert_true(r == -EBADMSG || r == -EINVAL || r == -EPROTO ||
                        r == -EPROTONOSUPPORT || r == -ENOENT); /* eight bytes are a lease */
        }
    }
    struct err err = ERR_INIT;
    kvp_put_hello(&hello, &(struct kvp_hello){KVP_VERSION, STR("admin")}); /* twice as long */
    assert_int_equal(rpc_call(c, STR("hello"), buf_str(&hello), NULL, 0, WAIT_NS, NULL, &err),
                     -EBADMSG);
    rpc_client_free(c);
    assert_true(daemon_is_alive(w.d));
    struct kv *kv = open_as(&w, "admin");
    kv_test_put(kv, "a", "1");
    kv_close(kv);
    world_done(&w);
}

/* A peer that starts watches and never fetches: the store goes on, its memory does not grow, others see everything. */
static void test_never_fetches(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = open_as(&w, "admin");
    AUTO_FREE char *big = calloc(1, 200 << 10);
    struct err err = ERR_INIT;
    uint64_t from = kv_test_put(kv, "other", "1");
    struct rpc_client *c = rpc_client_new(w.sock, NULL, NULL);
    struct rpc_reply reply;
    struct kvp_hello_reply hello = {0};
    AUTO_BUF b;
    buf_init(&b, 1000);
    kvp_put_hello(&b, &(struct kvp_hello){KVP_VERSION, STR("admin")});
    assert_int_equal(rpc_call(c, STR("hello"), buf_str(&b), NULL, 0, WAIT_NS, &reply, &err), 0);
    assert_int_equal(kvp_get_hello_reply(str_n(reply.payload, reply.n), &hello, &err), 0);
    rpc_reply_done(&reply);
    buf_clear(&b);
    kvp_put_watch(&b, &(struct kvp_watch){hello.session, 1, from, STR("f/")});
    assert_int_equal(rpc_call(c, STR("watch.start"), buf_str(&b), NULL, 0, WAIT_NS, NULL, &err),
                     0);
    uint64_t last = 0;
    for (int i = 0; i < 300; i++) { /* 60 MB */
        char key[16];
        snprintf(key, sizeof(key), "f/%d", i % 3);
        struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(big, 200 << 10)};
        assert_int_equal(kv_txn(kv, NULL, 0, &op, 1, &last, &err), 0);
    }
    /* now it fetches: all of it in order, or a RESET when history was too short */
    uint64_t at = 0, synced = 0;
    size_t n = 0, n_fetches = 0;
    while (synced < last) {
        buf_clear(&b);
        kvp_put_u64(&b, hello.session);
        assert_int_equal(
            rpc_call(c, STR("events"), buf_str(&b), NULL, 0, WAIT_NS, &reply, &err), 0);
        n_fetches++;
        struct str rest = str_n(reply.payload, reply.n);
        uint32_t id = 0;
        struct kv_event ev;
        while (kvp_next_event(&rest, &id, &ev, &err) == 1) {
            assert_int_equal(id, 1);
            assert_true(ev.item.mod_rev >= at);
            at = ev.item.mod_rev;
            n += ev.type == KV_EVENT_PUT;
            synced = ev.type == KV_EVENT_SYNC ? ev.item.mod_rev : synced;
            assert_true(ev.type != KV_EVENT_RESET); /* 60 MB is within history */
        }
        assert_int_equal(rest.n, 0);
        rpc_reply_done(&reply);
    }
    assert_int_equal(n, last - from);
    assert_true(n_fetches > 10);
    rpc_client_free(c);
    kv_close(kv);
    world_done(&w);
}

int main(int argc, char **argv)
{
    exe = argc == 2 ? argv[1] : "spx-state";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract),     cmocka_unit_test(test_kill),
        cmocka_unit_test(test_absent),       cmocka_unit_test(test_rights),
        cmocka_unit_test(test_dump_restore), cmocka_unit_test(test_admin),
        cmocka_unit_test(test_bad_messages), cmocka_unit_test(test_never_fetches),
        cmocka_unit_test(test_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
