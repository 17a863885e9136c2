/* What a person does with spx-state: looks, compacts, dumps, restores, and lets the disk run
 * full. */
#include "state/state_world.h"

#include "codec/json.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

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
    assert_true(world_has(kv, "text/\xc3\xa9", "{\"a\":\"\xc3\xa9\n\"}"));
    assert_true(world_has(kv, "empty", ""));
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
    struct kv *kv = world_open(&w, "admin"), *kv2 = world_open(&fresh, "admin");
    fill(kv);
    uint64_t lease = 0;
    assert_int_equal(kv_lease_grant(kv, 60, &lease, &err), 0);
    struct kv_op leased = {
        .type = KV_PUT, .key = STR("leased"), .value = STR("1"), .lease = lease};
    assert_int_equal(kv_txn(kv, NULL, 0, &leased, 1, NULL, &err), 0);
    AUTO_FD fd = open(tmpdir_path(&w.dir, "dump", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(world_ask(&w, "dump", "", -1, &answer, &err), -EINVAL);
    assert_string_equal(err.name, "NoDescriptor");
    err_clear(&err);
    assert_int_equal(world_ask(&w, "dump", "", fd, &answer, &err), 0);
    assert_non_null(strstr(answer, "\"keys\":2503"));
    free(answer);
    /* refused: not empty */
    assert_int_equal(world_ask(&w, "restore", "{}", fd, &answer, &err), -EEXIST);
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
        assert_int_equal(world_ask(&fresh, "restore", "{}", cut, &answer, &err), -EINVAL);
        assert_string_equal(err.name, "BadDump");
        err_clear(&err);
    }
    assert_int_equal(kv_test_delete(kv2, "x"), 0); /* still at revision 0 */
    assert_int_equal(world_ask(&fresh, "restore", "{}", fd, &answer, &err), 0);
    assert_non_null(strstr(answer, "\"keys\":2502"));
    free(answer);
    assert_filled(kv2);
    assert_false(world_has(kv2, "leased", "1"));
    /* forced, under a watch that was there before */
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    kv_test_put(kv2, "later", "1");
    assert_int_equal(kv_watch_start(kv2, STR(""), 0, kv_recorder_fn, rec, &watch, &err), 0);
    kv_recorder_wait(rec, kv_revision(kv2));
    kv_recorder_clear(rec);
    assert_int_equal(world_ask(&fresh, "restore", "{\"is_forced\":true}", fd, &answer, &err),
                     0);
    free(answer);
    kv_recorder_wait_reset(rec);
    assert_false(world_has(kv2, "later", "1"));
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
    struct kv *kv = world_open(&w, "admin");
    for (int i = 0; i < 10; i++) {
        kv_test_put(kv, "a", "1");
    }
    assert_int_equal(world_ask(&w, "stats", "", -1, &answer, &err), 0);
    AUTO(json_freep) struct json *j = NULL;
    assert_int_equal(json_parse(str_c(answer), &j, &err), 0);
    assert_int_equal(json_get_u64(j, "revision", 0), 10);
    assert_int_equal(json_get_u64(j, "history_events", 0), 10);
    assert_false(json_get_bool(j, "is_failing", true));
    free(answer);
    assert_int_equal(world_ask(&w, "compact", "{\"keep\":2}", -1, &answer, &err), 0);
    free(answer);
    json_free(j);
    assert_int_equal(world_ask(&w, "stats", "", -1, &answer, &err), 0);
    assert_int_equal(json_parse(str_c(answer), &j, &err), 0);
    assert_int_equal(json_get_u64(j, "history_events", 0), 2);
    assert_int_equal(json_get_u64(j, "compact_revision", 0), 8);
    free(answer);
    assert_int_equal(world_ask(&w, "nonsense", "", -1, &answer, &err), -EPROTO); /* who asks? */
    err_clear(&err);
    assert_int_equal(world_ask(&w, "compact", "{", -1, &answer, &err), -EINVAL);
    kv_close(kv);
    world_done(&w);
}

/* A file system that is really full: in a mount namespace of this process (made in main, before
 * any thread). */
static void test_disk_full(void **state)
{
    (void)state;
    struct tmpdir data;
    struct world w;
    struct err err = ERR_INIT;
    char filler[PATH_MAX];
    tmpdir_init(&data, "statefull");
    assert_int_equal(mount("tmpfs", data.path, "tmpfs", 0, "size=4m"), 0);
    world_init_as(&w, 0, data.path);
    struct kv *kv = world_open(&w, "admin");
    AUTO_FREE char *big = calloc(1, 64 << 10);
    kv_test_put(kv, "first", "1");
    AUTO_FD fd =
        open(tmpdir_path(&data, "filler", filler), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, big, 4096) == 4096) {}
    int r = 0, n = 0;
    for (; n < 200 && r == 0; n++) {
        char key[16];
        snprintf(key, sizeof(key), "f/%d", n);
        struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(big, 64 << 10)};
        r = kv_txn(kv, NULL, 0, &op, 1, NULL, &err);
    }
    assert_int_equal(r, -ENOSPC);
    assert_string_equal(err.name, "StoreFull");
    assert_non_null(strstr(err.msg, "state.db"));
    err_clear(&err);
    assert_true(world_has(kv, "first", "1")); /* reads go on */
    usleep(1300000);
    char *health = NULL;
    assert_int_equal(world_ask(&w, "health", "", -1, &health, &err), 0);
    assert_non_null(strstr(health, "degraded"));
    free(health);
    /* it even survives a restart while full */
    daemon_kill(w.d);
    assert_int_equal(daemon_restart(w.d, &err), 0);
    assert_true(world_has(kv, "first", "1"));
    assert_int_equal(unlink(filler), 0);
    close(steal_fd(&fd));
    assert_int_equal(world_put(kv, "after", "1", &err), 0); /* and goes on by itself */
    usleep(1300000);
    assert_int_equal(world_ask(&w, "health", "", -1, &health, &err), 0);
    assert_non_null(strstr(health, "\"ok\""));
    free(health);
    for (int i = 0; i < n - 1; i++) { /* all that was acknowledged */
        AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
        char key[16];
        struct kv_item item = {0};
        snprintf(key, sizeof(key), "f/%d", i);
        assert_int_equal(kv_get(kv, a, str_c(key), &item, &err), 0);
    }
    kv_close(kv);
    world_done(&w);
    assert_int_equal(umount(data.path), 0);
    tmpdir_done(&data);
}

static bool write_text(const char *path, const char *text)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* A mount namespace; who is not root becomes the root of a user namespace. */
static bool own_mounts(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char uids[32], gids[32];
    snprintf(uids, sizeof(uids), "0 %u 1", uid);
    snprintf(gids, sizeof(gids), "0 %u 1", gid);
    return unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) == 0 &&
           (uid == 0 || (write_text("/proc/self/setgroups", "deny") &&
                         write_text("/proc/self/uid_map", uids) &&
                         write_text("/proc/self/gid_map", gids))) &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

int main(int argc, char **argv)
{
    world_exe = argc == 2 ? argv[1] : world_exe;
    if (!own_mounts()) {
        perror("a mount namespace is needed");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump_restore),
        cmocka_unit_test(test_admin),
        cmocka_unit_test(test_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
