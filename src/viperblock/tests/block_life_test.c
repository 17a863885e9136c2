#include "viperblock/tests/block_world.h"

#include "base/num.h"
#include "base/time.h"
#include "crypto/crc.h"
#include "model/keys.h"
#include "os/proc_id.h"
#include "snap/snap_block.h"
#include "snap/snap_s3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* What happens to volumes over a long life: attached and detached again and again, without a
 * trace; many snapshots at once; a block of one that is damaged. */

#define BLOCK     (512u << 10)
#define VOL1      "vol-00000000000000001"
#define VOL2      "vol-00000000000000002"
#define SNAP1     "snap-00000000000000001"
#define INSTANCE2 "i-00000000000000002"
#define WARM      4u
#define ROUNDS    "SPX_ATTACH_ROUNDS" /* environment; tools/soak.sh: 1,000 */

static char **args;
static struct world w;

static int setup(void **state)
{
    (void)state;
    world_init(&w, args);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* --- attach, detach, reattach ---------------------------------------------------------------- */

struct trace { /* of one process */
    uint64_t n_fds, n_threads, n_maps, rss_kib;
};

static uint64_t n_entries(const char *path)
{
    uint64_t n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n - 2;
}

static uint64_t n_lines(const char *path)
{
    uint64_t n = 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    for (int c = getc(f); c != EOF; c = getc(f)) {
        n += c == '\n';
    }
    fclose(f);
    return n;
}

static struct trace trace_of(pid_t pid)
{
    char path[64], line[128];
    struct trace t = {.rss_kib = 0};
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    t.n_fds = n_entries(path);
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    t.n_threads = n_entries(path);
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    t.n_maps = n_lines(path);
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        (void)!sscanf(line, "VmRSS: %lu kB", &t.rss_kib);
    }
    fclose(f);
    return t;
}

static void tell(const char *who, const struct trace *a, const struct trace *b)
{
    print_message("           %s: descriptors %lu -> %lu, threads %lu -> %lu, mappings %lu -> "
                  "%lu, KiB %lu -> %lu\n",
                  who, a->n_fds, b->n_fds, a->n_threads, b->n_threads, a->n_maps, b->n_maps,
                  a->rss_kib, b->rss_kib);
}

static pid_t data_pid(const char *name)
{
    char path[PATH_MAX * 2];
    pid_t pid = 0;
    int fd = -1;
    snprintf(path, sizeof(path), "%s/viperblock/%s/pid", w.run, name);
    assert_int_equal(proc_id_open(path, &pid, &fd, NULL), 0);
    close(fd);
    return pid;
}

/* What the last one wrote is there; then something new. */
static void use(const char *instance, uint64_t stamp)
{
    static char page[4096], got[4096];
    struct test_disk d;
    struct volume v = world_volume(VOL2, 1);
    v.generation = stamp * 2 + 10;
    v.instance_id = str_c(instance);
    world_put_volume(&w, &v);
    world_open(&w, VOL2, instance, &d);
    test_fill(page, sizeof(page), stamp);
    assert_int_equal(test_disk_read(&d, stamp % 7 * BLOCK, got, sizeof(got)), 0);
    assert_memory_equal(got, page, sizeof(page));
    test_fill(page, sizeof(page), stamp + 1);
    assert_int_equal(test_disk_write(&d, (stamp + 1) % 7 * BLOCK, page, sizeof(page)), 0);
    assert_int_equal(test_disk_flush(&d), 0);
    world_close(&w, VOL2, instance, &d);
}

static void wait_processes(size_t n)
{
    for (int i = 0; i < 3000 && world_n_processes(&w) != n; i++) {
        usleep(20000);
    }
    assert_int_equal(world_n_processes(&w), n);
}

/* Comes down to what it was: threads and descriptors of what was closed go a moment later. */
static struct trace settled(pid_t pid, const struct trace *was)
{
    struct trace t = trace_of(pid);
    for (int i = 0; i < 3000 && (t.n_fds > was->n_fds || t.n_threads > was->n_threads); i++) {
        usleep(20000);
        t = trace_of(pid);
    }
    return t;
}

/* One volume goes back and forth between an instance that has another one, whose process lives,
 * and one whose process comes and goes with it. */
static void a_volume_is_attached_again_and_again(void **state)
{
    (void)state;
    static char page[4096];
    struct test_disk d;
    const char *text = getenv(ROUNDS);
    uint64_t rounds = 0, stamp = 0;
    assert_int_equal(num_u64(str_c(text ? text : "6"), 1000000, &rounds), 0);
    struct volume v1 = world_volume(VOL1, 1), v2 = world_volume(VOL2, 1);
    world_put_volume(&w, &v1);
    world_put_volume(&w, &v2);
    world_wait_volume(&w, VOL1, "available");
    world_wait_volume(&w, VOL2, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    struct test_disk e;
    world_open(&w, VOL2, INSTANCE, &e);
    test_fill(page, sizeof(page), 0);
    assert_int_equal(test_disk_write(&e, 0, page, sizeof(page)), 0);
    world_close(&w, VOL2, INSTANCE, &e);
    pid_t manager = daemon_pid(w.d[WORLD_BLOCK]), data = data_pid(INSTANCE);
    struct trace m[2], p[2];
    uint64_t began = 0, end = time_mono_ns();
    for (uint64_t i = 0; i < rounds + WARM; i++) {
        if (i == WARM) { /* pools and caches are what they will be */
            wait_processes(1);
            m[0] = trace_of(manager);
            p[0] = trace_of(data);
            began = time_mono_ns();
        }
        use(INSTANCE, stamp++);
        use(INSTANCE2, stamp++);
    }
    end = time_mono_ns();
    wait_processes(1);
    m[1] = settled(manager, &m[0]);
    p[1] = settled(data, &p[0]);
    print_message("           %lu rounds, %lu us each\n", rounds,
                  (end - began) / 1000 / rounds);
    tell("manager", &m[0], &m[1]);
    tell("data process", &p[0], &p[1]);
    assert_in_range(m[1].n_fds, 0, m[0].n_fds);
    assert_in_range(p[1].n_fds, 0, p[0].n_fds);
    assert_in_range(m[1].n_threads, 0, m[0].n_threads);
    assert_in_range(p[1].n_threads, 0, p[0].n_threads);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed for a while */
    assert_in_range(p[1].n_maps, 0, p[0].n_maps + 16);
    assert_in_range(m[1].rss_kib, 0, m[0].rss_kib + 2048);
    assert_in_range(p[1].rss_kib, 0, p[0].rss_kib + 2048);
#endif
    assert_int_equal(test_disk_flush(&d), 0);
    world_close(&w, VOL1, INSTANCE, &d);
    wait_processes(0);
    world_delete_volume(&w, &v1);
    v2.generation = stamp * 2 + 100;
    world_delete_volume(&w, &v2);
    static const char *const folders[] = {"data/viperblock/volumes", "data/viperblock/trash",
                                          "run/viperblock/maps"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        assert_int_equal(world_count(&w, folders[i]), 0);
    }
    assert_int_equal(world_count(&w, "run/viperblock"), 1); /* maps */
}

/* --- many snapshots
 * -------------------------------------------------------------------------- */

static struct volume from_snapshot(const char *id, const char *snap)
{
    struct volume v = world_volume(id, 1);
    v.snapshot_id = arena_str_dup(w.a, str_c(snap));
    v.snapshot_account = STR(ACCOUNT);
    return v;
}

/* More at once than the maps can hold, deleted before they are done, their volume too: what was
 * asked for first is done first, and nothing is left. */
static void many_snapshots_at_once(void **state)
{
    (void)state;
    struct test_disk d;
    static char page[4096], got[4096];
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    for (unsigned i = 0; i < 7; i++) {
        char id[40];
        snprintf(id, sizeof(id), "snap-%017u", i + 1);
        test_fill(page, sizeof(page), 900 + i);
        assert_int_equal(test_disk_write(&d, 0, page, sizeof(page)), 0);
        assert_int_equal(test_disk_write(&d, (uint64_t)(i + 1) << 20, page, sizeof(page)), 0);
        assert_int_equal(test_disk_flush(&d), 0);
        struct snapshot s = world_snapshot_rec(id, VOL1);
        world_put_snapshot(&w, &s);
        world_wait_started(&w, id);
        if (i % 3 == 2) { /* not wanted any more: it is finished, then removed */
            s.want = STR("deleted");
            s.generation = 2;
            world_put_snapshot(&w, &s);
        }
    }
    world_close(&w, VOL1, INSTANCE, &d);
    for (unsigned i = 0; i < 7; i++) {
        char id[40], vol[40];
        snprintf(id, sizeof(id), "snap-%017u", i + 1);
        world_wait_snapshot(&w, id, i % 3 == 2 ? "deleted" : "completed");
        if (i % 3 == 2) {
            continue;
        }
        snprintf(vol, sizeof(vol), "vol-%017u", 50 + i);
        struct volume r = from_snapshot(vol, id);
        r.id = arena_str_dup(w.a, str_c(vol));
        world_put_volume(&w, &r);
        world_wait_volume(&w, vol, "available");
        world_open(&w, vol, INSTANCE, &d);
        test_fill(page, sizeof(page), 900 + i);
        assert_int_equal(test_disk_read(&d, 0, got, sizeof(got)), 0);
        assert_memory_equal(got, page, sizeof(page));
        memset(page, 0, sizeof(page));
        assert_int_equal(test_disk_read(&d, (uint64_t)(i + 2) << 20, got, sizeof(got)), 0);
        assert_memory_equal(got, page, sizeof(page));
        world_close(&w, vol, INSTANCE, &d);
        world_delete_volume(&w, &r);
    }
    /* a volume that goes while its last snapshot is read: the snapshot is whole all the same */
    struct snapshot last = world_snapshot_rec("snap-00000000000000099", VOL1);
    world_put_snapshot(&w, &last);
    world_wait_started(&w, "snap-00000000000000099");
    world_delete_volume(&w, &v);
    world_wait_snapshot(&w, "snap-00000000000000099", "completed");
    for (unsigned i = 0; i < 7; i++) {
        char id[40];
        snprintf(id, sizeof(id), "snap-%017u", i + 1);
        if (i % 3 != 2) {
            world_delete_snapshot(&w, id, VOL1);
        }
    }
    world_delete_snapshot(&w, "snap-00000000000000099", VOL1);
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_kept + u.n_pending + u.n_blocks + u.n_pages, 0);
    assert_int_equal(world_count(&w, "data/viperblock/volumes"), 0);
}

/* --- a damaged block ------------------------------------------------------------------------- */

/* One byte of block 'block' is another one in the store; or, is_gone, the block is not there. */
static void damage(uint64_t block, bool is_gone)
{
    static char buf[BLOCK];
    char sock[PATH_MAX], pending[PATH_MAX], key[SNAP_KEY_MAX];
    uint8_t name[1][SNAP_NAME];
    struct err err = ERR_INIT;
    struct snap_store *s = NULL;
    size_t n = 0;
    struct snap_opts o = {.socket = tmpdir_path(&w.dir, "run/predastore-s3.sock", sock),
                          .bucket = ".viperblock",
                          .pending_dir = tmpdir_path(&w.dir, "other-pending", pending)};
    assert_int_equal(snap_open(&o, &s, &err), 0);
    assert_int_equal(snap_names(s, STR(ACCOUNT), STR(SNAP1), block, 1, name, &err), 0);
    snap_close(s);
    AUTO(snap_s3_freep)
    struct snap_s3 *c = snap_s3_new(&(struct snap_s3_opts){
        .socket = sock, .bucket = ".viperblock", .n_conns = 1, .stall_ns = 10 * NS_PER_S});
    snap_key_name('b', STR(ACCOUNT), name[0], key);
    assert_int_equal(snap_s3_get(c, key, buf, sizeof(buf), &n, &err), 0);
    assert_int_equal(n, BLOCK);
    if (is_gone) {
        assert_int_equal(snap_s3_delete(c, key, &err), 0);
        return;
    }
    buf[BLOCK / 3] ^= 1;
    const struct snap_s3_put put = {.key = key,
                                    .body = str_n(buf, BLOCK),
                                    .crc = (uint32_t)crc_add(CRC_32C, 0, str_n(buf, BLOCK))};
    assert_int_equal(snap_s3_put(c, &put, &err), 0);
}

/* The guest gets errors for these two blocks, each time and at once; all others are served, what
 * is written over them whole is there, and a check names them. */
static void a_damaged_block_is_an_error_for_itself_alone(void **state)
{
    (void)state;
    enum { N = 8, BAD = 2, GONE = 5 };
    static char block[N][BLOCK], got[BLOCK];
    struct test_disk d;
    struct str answer = STR("");
    struct err err = ERR_INIT;
    char text[PATH_MAX * 4], out[PATH_MAX];
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    for (unsigned i = 0; i < N; i++) {
        test_fill(block[i], BLOCK, i + 1);
        assert_int_equal(test_disk_write(&d, (uint64_t)i * BLOCK, block[i], BLOCK), 0);
    }
    world_snapshot(&w, SNAP1, VOL1);
    world_close(&w, VOL1, INSTANCE, &d);
    damage(BAD, false);
    damage(GONE, true);
    struct volume r = world_volume(VOL2, 1);
    r.snapshot_id = STR(SNAP1);
    r.snapshot_account = STR(ACCOUNT);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    world_open(&w, VOL2, INSTANCE, &d);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++) {
            int rc = test_disk_read(&d, (uint64_t)i * BLOCK, got, BLOCK);
            assert_int_equal(rc != 0, i == BAD || i == GONE);
            if (rc == 0) {
                assert_memory_equal(got, block[i], BLOCK);
            }
        }
        if (round == 0) {
            world_kill_data(&w, INSTANCE); /* so it stays after a death */
        }
    }
    /* Pages that are written whole need nothing of the source. */
    test_fill(got, 8192, 99);
    assert_int_equal(test_disk_write(&d, BAD * BLOCK + 65536, got, 8192), 0);
    assert_int_equal(test_disk_flush(&d), 0);
    static char again[8192];
    assert_int_equal(test_disk_read(&d, BAD * BLOCK + 65536, again, 8192), 0);
    assert_memory_equal(again, got, 8192);
    assert_int_not_equal(test_disk_read(&d, BAD * BLOCK, again, 8192), 0);
    struct volume_status st = world_wait_volume(&w, VOL2, "available");
    for (int i = 0; i < 3000 && !str_eqc(st.health, "impaired"); i++) {
        usleep(20000);
        st = world_wait_volume(&w, VOL2, "available");
    }
    assert_str(st.health, "impaired");
    world_close(&w, VOL2, INSTANCE, &d);
    /* The first volume has its own bytes. A check names the blocks; one that is not deep cannot
     * know. */
    world_open(&w, VOL1, INSTANCE, &d);
    assert_int_equal(test_disk_read(&d, BAD * BLOCK, got, BLOCK), 0);
    assert_memory_equal(got, block[BAD], BLOCK);
    world_close(&w, VOL1, INSTANCE, &d);
    assert_int_equal(
        world_call(&w, "volume.check", "{\"is_deep\":true}", -1, &answer, NULL, &err), 0);
    const char *a = arena_cstr(w.a, answer);
    assert_non_null(strstr(a, "{\"id\":\"" SNAP1 "\",\"what\":\"block-damaged\",\"text\":"
                              "\"block 2 is damaged\"}"));
    assert_non_null(strstr(a, "{\"id\":\"" SNAP1 "\",\"what\":\"block-missing\",\"text\":"
                              "\"block 5 is missing\"}"));
    assert_null(strstr(a, "block 1 "));
    tmpdir_path(&w.dir, "checked", out);
    snprintf(text, sizeof(text),
             "'%s' --config '%s' admin volumes check --deep >'%s' 2>&1 && exit 1; "
             "grep -A1 '" SNAP1 ".*block-damaged' '%s' | grep -q 'block 2 is damaged'",
             args[1], w.config, out, out);
    world_sh(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_volume_is_attached_again_and_again, setup, teardown),
        cmocka_unit_test_setup_teardown(many_snapshots_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_block_is_an_error_for_itself_alone, setup,
                                        teardown),
    };
    if (argc < 5) {
        fprintf(stderr, "usage: %s SPX SPX-STATE SPX-PREDASTORE SPX-VIPERBLOCK [TEST]\n",
                argv[0]);
        return 2;
    }
    args = argv;
    if (argc > 5) {
        cmocka_set_test_filter(argv[5]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
