/* Peers of spx-state that may not, that speak nonsense, or that do not listen. */
#include "state/state_world.h"

#include "base/buf.h"
#include "kv/kv_proto.h"
#include "net/rpc.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- rights, over the wire ---- */

static void test_rights(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct kv *awsgw = world_open(&w, "awsgw"), *compute = world_open(&w, "compute"),
              *stranger = world_open(&w, "nobody");
    struct err err = ERR_INIT;
    struct kv_item item = {0};
    struct kv_list list = {0};
    struct kv_watch *watch = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    assert_int_equal(world_put(awsgw, "spec/instance/1/i-1", "{}", &err), 0);
    assert_int_equal(world_put(awsgw, "iam/key/AKIA", "{}", &err), 0);
    assert_int_equal(world_put(compute, "status/instance/1/i-1", "{}", &err), 0);
    assert_int_equal(world_put(compute, "spec/instance/1/i-1", "{}", &err), -EPERM);
    assert_string_equal(err.name, "AccessDenied");
    err_clear(&err);
    assert_int_equal(world_put(awsgw, "status/instance/1/i-1", "{}", &err), -EPERM);
    err_clear(&err);
    /* one forbidden operation: nothing of it is done */
    struct kv_op op[2] = {
        {.type = KV_PUT, .key = STR("status/instance/1/i-2"), .value = STR("{}")},
        {.type = KV_DELETE, .key = STR("spec/instance/1/i-1")}};
    assert_int_equal(kv_txn(compute, NULL, 0, op, 2, NULL, &err), -EPERM);
    err_clear(&err);
    assert_false(world_has(compute, "status/instance/1/i-2", "{}"));
    struct kv_op gone = {.type = KV_DELETE, .key = STR("status/instance/1/i-1")};
    assert_int_equal(kv_txn(awsgw, NULL, 0, &gone, 1, NULL, &err), 0); /* delete only */
    assert_true(world_has(compute, "spec/instance/1/i-1", "{}"));
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

/* With users: the kernel says who is at the other end. */
static int hello_as(const struct world *w, const char *service)
{
    AUTO_BUF b;
    buf_init(&b, 100);
    kvp_put_hello(&b, &(struct kvp_hello){KVP_VERSION, str_c(service)});
    struct rpc_client *c = rpc_client_new(w->sock, NULL, NULL);
    int r = rpc_call(c, STR("hello"), buf_str(&b), NULL, 0, WAIT_NS, NULL, NULL);
    rpc_client_free(c);
    return r;
}

static int hello_of_uid(const struct world *w, uid_t uid, const char *service)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(uid) != 0 || setuid(uid) != 0) {
            _exit(99);
        }
        int r = hello_as(w, service);
        _exit(r == 0 ? 0 : r == -EPERM ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_users(void **state)
{
    (void)state;
    enum { BASE = 70000 };
    struct world w;
    if (geteuid() != 0) { /* we are none of the users: whatever we call ourselves, no */
        world_init_as(&w, BASE, NULL);
        assert_int_equal(hello_as(&w, "awsgw"), -EPERM);
        assert_int_equal(hello_as(&w, "admin"), -EPERM);
        world_done(&w);
        return;
    }
    struct tmpdir data;
    tmpdir_init(&data, "statedata");
    assert_int_equal(chmod(data.path, 0755), 0);
    world_init_as(&w, BASE, data.path);
    assert_int_equal(chmod(w.dir.path, 0755), 0);
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d", (int)daemon_pid(w.d));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, BASE + 1); /* root was given up */
    assert_int_equal(stat(tmpdir_path(&data, "state/state.db", path), &st), 0);
    assert_int_equal(st.st_uid, BASE + 1);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(hello_as(&w, "admin"), 0);
    assert_int_equal(hello_as(&w, "compute"), 0);
    assert_int_equal(hello_as(&w, "vpcd"), 0);
    assert_int_equal(hello_as(&w, "awsgw"), -EPERM);
    assert_int_equal(hello_of_uid(&w, BASE + 2, "awsgw"), 0);
    assert_int_equal(hello_of_uid(&w, BASE + 3, "viperblock"), 0);
    assert_int_equal(hello_of_uid(&w, BASE + 2, "admin"), 1);
    assert_int_equal(hello_of_uid(&w, BASE + 2, "viperblock"), 1);
    assert_int_equal(hello_of_uid(&w, BASE + 100, "awsgw"), 1); /* a guest's */
    assert_int_equal(hello_of_uid(&w, BASE + 100, "compute"), 1);
    world_done(&w);
    tmpdir_done(&data);
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
    struct kv *kv = world_open(&w, "admin");
    kv_test_put(kv, "a", "1");
    kv_close(kv);
    world_done(&w);
}

/* A peer that starts watches and never fetches: the store goes on, its memory does not grow,
 * others see everything. */
static void test_never_fetches(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = world_open(&w, "admin");
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
    world_exe = argc == 2 ? argv[1] : world_exe;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_never_fetches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
