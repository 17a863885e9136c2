#include "base/test.h"

#include "base/arena.h"
#include "base/time.h"
#include "codec/json.h"
#include "kv/kv.h"
#include "model/keys.h"
#include "model/volume.h"
#include "net/rpc.h"
#include "testkit/daemon.h"
#include "testkit/tmpdir.h"
#include "viperblock/test_env.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* The real executables: spx-state and spx-viperblock, killed without warning while they work.
 * */

static const char *state_exe, *viperblock_exe;
static struct tmpdir tmp;
static char config[PATH_MAX], state_sock[PATH_MAX], vb_sock[PATH_MAX], disk[PATH_MAX];
static struct daemon *state, *viperblock;
static struct kv *kv;
static struct arena *arena;

static struct daemon *start(const char *exe, const char *log, const char *sock)
{
    char path[PATH_MAX];
    struct err err = ERR_INIT;
    struct daemon *d = NULL;
    const char *argv[] = {exe, "--config", config, NULL};
    struct daemon_opts o = {
        .argv = argv, .log_path = tmpdir_path(&tmp, log, path), .health_socket = sock};
    if (daemon_start(&o, &d, &err) != 0) {
        fail_msg("%s: %s", exe, err.msg);
    }
    return d;
}

static int setup(void **ctx)
{
    char text[2000], path[PATH_MAX];
    struct err err = ERR_INIT;
    (void)ctx;
    tmpdir_init(&tmp, "vbd");
    snprintf(text, sizeof(text),
             "version = 4\nnode = \"node1\"\n[aws]\nregion = \"eu-1\"\n[nodes.node1]\nhost = "
             "\"127.0.0.1\"\ndata_dir = \"%s/data\"\n"
             "run_dir = \"%s\"\nuid_base = 0\n",
             tmp.path, tmp.path);
    tmpdir_write(&tmp, "spinifex.toml", text, config);
    tmpdir_path(&tmp, "state.sock", state_sock);
    tmpdir_path(&tmp, "viperblock.sock", vb_sock);
    assert_int_equal(mkdir(tmpdir_path(&tmp, "data", path), 0700), 0);
    assert_int_equal(mkdir(tmpdir_path(&tmp, "data/state", path), 0700), 0);
    make_disk(tmpdir_path(&tmp, "disk.raw", disk), 32);
    state = start(state_exe, "state.log", state_sock);
    viperblock = start(viperblock_exe, "viperblock.log", vb_sock);
    assert_int_equal(kv_open_remote_as(state_sock, "awsgw", &kv, &err), 0);
    arena = arena_new(64u << 20);
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    assert_int_equal(daemon_stop(viperblock, 20 * NS_PER_S), 0);
    kv_close(kv);
    assert_int_equal(daemon_stop(state, 20 * NS_PER_S), 0);
    daemon_free(viperblock);
    daemon_free(state);
    arena_free(arena);
    tmpdir_done(&tmp);
    return 0;
}

static void put_volume(const char *id, const char *image)
{
    struct volume v = {.id = str_c(id),
                       .account = STR(TEST_ACCOUNT),
                       .generation = 1,
                       .want = STR("present"),
                       .node = STR("node1"),
                       .size_gib = 1,
                       .image_id = str_c(image)};
    struct err err = ERR_INIT;
    AUTO_BUF b;
    buf_init(&b, KV_MAX_VALUE);
    assert_int_equal(rec_save(&volume_desc, &v, &b, &err), 0);
    struct kv_op op = {.type = KV_PUT,
                       .key = key_spec(arena, "volume", v.account, v.id),
                       .value = buf_str(&b)};
    if (kv_txn(kv, NULL, 0, &op, 1, NULL, &err) != 0) {
        fail_msg("%s: %s", err.name, err.msg);
    }
}

static void wait_available(const char *id)
{
    struct str key = key_status(arena, "volume", STR(TEST_ACCOUNT), str_c(id));
    uint64_t end = time_mono_ns() + 60 * NS_PER_S;
    struct str text = STR("(none)");
    while (time_mono_ns() < end) {
        struct kv_item item;
        struct volume_status st;
        if (kv_get(kv, arena, key, &item, NULL) == 0 &&
            rec_load(&volume_status_desc, arena, item.value, &st, NULL) == 0) {
            text = item.value;
            if (str_eqc(st.state, "available")) {
                return;
            }
        }
        usleep(20000);
    }
    fail_msg("%s: %.*s", id, STR_ARG(text));
}

static int import(const char *name, uint64_t timeout_ns, char id[32], struct err *err)
{
    char args[300];
    struct rpc_reply r;
    AUTO_FD fd = open(disk, O_RDONLY | O_CLOEXEC);
    struct rpc_client *c = rpc_client_new(vb_sock, NULL, NULL);
    snprintf(args, sizeof(args), "{\"account\":\"" TEST_ACCOUNT "\",\"name\":\"%s\"}", name);
    int rc = rpc_call(c, STR("image.import"), str_c(args), &fd, 1, timeout_ns, &r, err);
    if (rc == 0) {
        struct json *j = NULL;
        assert_int_equal(json_parse(str_n(r.payload, r.n), &j, NULL), 0);
        snprintf(id, 32, "%.*s", STR_ARG(json_get_str(j, "image_id")));
        json_free(j);
        rpc_reply_done(&r);
    }
    rpc_client_free(c);
    return rc;
}

static void works_and_stops(void **ctx)
{
    char id[32], data[PATH_MAX * 2];
    struct err err = ERR_INIT;
    (void)ctx;
    if (import("first", 60 * NS_PER_S, id, &err) != 0) {
        fail_msg("%s: %s", err.name, err.msg);
    }
    put_volume("vol-00000000000000001", id);
    wait_available("vol-00000000000000001");
    snprintf(data, sizeof(data), "%s/data/viperblock/images/%s/data", tmp.path, id);
    assert_true(same_bytes(disk, data));
}

static void killed_service_comes_back(void **ctx)
{
    char id[32], vol[40], name[40];
    struct err err = ERR_INIT;
    (void)ctx;
    assert_int_equal(import("killed", 60 * NS_PER_S, id, &err), 0);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 4; k++) {
            snprintf(vol, sizeof(vol), "vol-%017d", 100 + i * 4 + k);
            put_volume(vol, id);
        }
        usleep(10000u * (unsigned)(i * i));
        daemon_kill(viperblock);
        err_clear(&err);
        snprintf(name, sizeof(name), "gone %d", i);
        assert_true(import(name, NS_PER_S / 5, vol, &err) < 0);
        err_clear(&err);
        if (daemon_restart(viperblock, &err) != 0) {
            fail_msg("%s", err.msg);
        }
        for (int k = 0; k < 4; k++) {
            snprintf(vol, sizeof(vol), "vol-%017d", 100 + i * 4 + k);
            wait_available(vol);
        }
    }
}

/* The store goes and comes back: what was wanted meanwhile is done. */
static void killed_store_is_waited_for(void **ctx)
{
    struct err err = ERR_INIT;
    (void)ctx;
    put_volume("vol-00000000000000201", "");
    daemon_kill(state);
    usleep(300000);
    if (daemon_restart(state, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    put_volume("vol-00000000000000202", "");
    wait_available("vol-00000000000000201");
    wait_available("vol-00000000000000202");
    assert_true(daemon_is_alive(viperblock));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(works_and_stops, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_service_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_store_is_waited_for, setup, teardown),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: daemon_test SPX-STATE SPX-VIPERBLOCK\n");
        return 2;
    }
    state_exe = argv[1];
    viperblock_exe = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
