#include "viperblock/tests/block_world.h"

#include "base/time.h"
#include "codec/json.h"
#include "model/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Volumes and snapshots with the real services. A file ("shadow") has what each disk should
 * hold. */

#define BLOCK (512u << 10)
#define GIB   (UINT64_C(1) << 30)
#define VOL1  "vol-00000000000000001"
#define VOL2  "vol-00000000000000002"
#define VOL3  "vol-00000000000000003"
#define SNAP1 "snap-00000000000000001"
#define SNAP2 "snap-00000000000000002"
#define SNAP3 "snap-00000000000000003"
#define AMI1  "ami-00000000000000001"

static char **args;
static struct world w;
static char shadow[3][PATH_MAX];

static int setup(void **state)
{
    (void)state;
    world_init(&w, args);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "shadow%d", i);
        tmpdir_write(&w.dir, name, "", shadow[i]);
        assert_int_equal(truncate(shadow[i], 64 << 20), 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* 'n' pieces of 'size' bytes at places that follow from the seed, on the disk and in its
 * shadow. */
static void write_some(struct test_disk *d, const char *path, uint64_t seed, unsigned n,
                       size_t size)
{
    static char buf[BLOCK];
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && size <= sizeof(buf));
    for (unsigned i = 0; i < n; i++) {
        uint64_t off = (seed * 7919 + i * UINT64_C(104729)) % ((64 << 20) / 4096) * 4096;
        off = MIN(off, (UINT64_C(64) << 20) - size);
        test_fill(buf, size, seed * 1000 + i);
        assert_int_equal(test_disk_write(d, off, buf, size), 0);
        assert_int_equal(pwrite(fd, buf, size, (off_t)off), (ssize_t)size);
    }
    assert_int_equal(test_disk_flush(d), 0);
}

static void copy_shadow(int from, int to)
{
    char x[PATH_MAX * 2 + 64];
    snprintf(x, sizeof(x), "cp --sparse=always '%s' '%s'", shadow[from], shadow[to]);
    world_sh(x);
}

static struct volume from_snapshot(const char *id, const char *snap)
{
    struct volume v = world_volume(id, 1);
    v.snapshot_id = str_c(snap);
    v.snapshot_account = STR(ACCOUNT);
    return v;
}

static void equals(const char *id, int i)
{
    struct test_disk d;
    world_open(&w, id, INSTANCE, &d);
    test_disk_equals(&d, shadow[i]);
    world_close(&w, id, INSTANCE, &d);
}

static void wait_no_processes(void)
{
    for (int i = 0; i < 1000 && world_n_processes(&w) > 0; i++) {
        usleep(20000);
    }
    assert_int_equal(world_n_processes(&w), 0);
}

/* A volume, its snapshots (the second an increment), and volumes of both; all is gone at the
 * end. */
static void snapshots_are_points_in_time(void **state)
{
    (void)state;
    struct test_disk d;
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    write_some(&d, shadow[0], 1, 40, 65536);
    world_snapshot(&w, SNAP1, VOL1);
    copy_shadow(0, 1);
    write_some(&d, shadow[0], 2, 3, 8192);
    world_snapshot(&w, SNAP2, VOL1);
    copy_shadow(0, 2);
    write_some(&d, shadow[0], 3, 40, 65536);
    struct snapshot_status st = world_wait_snapshot(&w, SNAP2, "completed");
    assert_true(st.new_bytes <= 6 * BLOCK && st.new_bytes >= BLOCK);
    assert_true(st.full_bytes >= 30 * BLOCK);
    assert_true(st.start_ns > 0 && st.complete_ns >= st.start_ns);
    assert_int_equal(st.progress, 100);
    test_disk_equals(&d, shadow[0]);
    world_close(&w, VOL1, INSTANCE, &d);
    wait_no_processes();

    struct volume v2 = from_snapshot(VOL2, SNAP1), v3 = from_snapshot(VOL3, SNAP2);
    world_put_volume(&w, &v2);
    world_put_volume(&w, &v3);
    world_wait_volume(&w, VOL2, "available");
    world_wait_volume(&w, VOL3, "available");
    equals(VOL1, 0);

    /* in another order than they were made; volumes that were never read keep their blocks */
    world_delete_snapshot(&w, SNAP1, VOL1);
    world_delete_volume(&w, &v);
    equals(VOL2, 1);
    world_delete_volume(&w, &v2);
    world_delete_snapshot(&w, SNAP2, VOL1);
    equals(VOL3, 2);
    world_delete_volume(&w, &v3);
    wait_no_processes();
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_kept + u.n_pending, 0);
    assert_int_equal(u.n_blocks + u.n_pages + u.bytes, 0);
    assert_int_equal(world_count(&w, "data/viperblock/volumes"), 0);
    assert_int_equal(world_count(&w, "data/viperblock/trash"), 0);
    assert_int_equal(world_count(&w, "data/viperblock/pending"), 0);
    assert_int_equal(world_count(&w, "run/viperblock/maps"), 0);
}

/* Services and processes are killed at any moment while a snapshot is on its way and a guest
 * writes; block_steps_test.c does it step by step. */
static void killed_at_any_moment(void **state)
{
    (void)state;
    struct test_disk d;
    unsigned seed = (unsigned)time_wall_ns();
    print_message("seed %u\n", seed);
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    for (unsigned round = 0; round < 3; round++) {
        char id[40], vol[40];
        snprintf(id, sizeof(id), "snap-%017u", round + 1);
        snprintf(vol, sizeof(vol), "vol-%017u", round + 10);
        write_some(&d, shadow[0], 10 + round, 25, 65536);
        copy_shadow(0, 1);
        struct snapshot s = world_snapshot_rec(id, VOL1);
        world_put_snapshot(&w, &s);
        world_wait_started(&w, id);
        for (unsigned k = 0; k < 3; k++) {
            write_some(&d, shadow[0], 100 * round + k, 6, 16384);
            usleep((useconds_t)(rand_r(&seed) % 120000));
            unsigned who = (unsigned)rand_r(&seed) % 3;
            if (who == 0) {
                world_kill_data(&w, INSTANCE);
            } else {
                enum world_service x = who == 1 ? WORLD_BLOCK : WORLD_STORE;
                world_kill(&w, x);
                world_restart(&w, x);
            }
        }
        world_wait_snapshot(&w, id, "completed");
        test_disk_equals(&d, shadow[0]);
        struct volume r = from_snapshot(vol, id);
        world_put_volume(&w, &r);
        world_wait_volume(&w, vol, "available");
        equals(vol, 1);
        world_delete_volume(&w, &r);
    }
    world_close(&w, VOL1, INSTANCE, &d);
    for (unsigned round = 0; round < 3; round++) {
        char id[40];
        snprintf(id, sizeof(id), "snap-%017u", (round * 2 + 1) % 3 + 1);
        world_delete_snapshot(&w, id, VOL1);
    }
    world_delete_volume(&w, &v);
    wait_no_processes();
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_kept + u.n_pending + u.n_blocks + u.n_pages, 0);
}

/* All volumes of an instance at one moment: a number written to the first, then to the second,
 * is never newer on the second's snapshot. */
static void groups_are_of_one_moment(void **state)
{
    (void)state;
    struct test_disk d[2], r;
    static char page[4096];
    const char *const vols[] = {VOL1, VOL2};
    const char *const snaps[] = {SNAP1, SNAP2};
    uint64_t seen[2];
    for (int i = 0; i < 2; i++) {
        struct volume v = world_volume(vols[i], 1);
        world_put_volume(&w, &v);
        world_wait_volume(&w, vols[i], "available");
        world_open(&w, vols[i], INSTANCE, &d[i]);
    }
    assert_int_equal(world_n_processes(&w), 1);
    for (int i = 0; i < 2; i++) {
        struct snapshot s = world_snapshot_rec(snaps[i], vols[i]);
        s.group = STR("group-1");
        s.n_group = 2;
        world_put_snapshot(&w, &s);
    }
    uint64_t n = 0, end = time_mono_ns() + NS_PER_S / 2;
    while (time_mono_ns() < end) {
        n++;
        memcpy(page, &n, sizeof(n));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(test_disk_write(&d[i], 0, page, sizeof(page)), 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        char id[40];
        world_wait_snapshot(&w, snaps[i], "completed");
        world_close(&w, vols[i], INSTANCE, &d[i]);
        snprintf(id, sizeof(id), "vol-%017d", 20 + i);
        struct volume v = from_snapshot(id, snaps[i]);
        world_put_volume(&w, &v);
        world_wait_volume(&w, id, "available");
        world_open(&w, id, INSTANCE, &r);
        assert_int_equal(test_disk_read(&r, 0, page, sizeof(page)), 0);
        memcpy(&seen[i], page, sizeof(seen[i]));
        world_close(&w, id, INSTANCE, &r);
    }
    print_message("%llu and %llu of %llu\n", (unsigned long long)seen[0],
                  (unsigned long long)seen[1], (unsigned long long)n);
    assert_true(seen[0] == seen[1] || seen[0] == seen[1] + 1);
    assert_int_equal(world_wait_snapshot(&w, SNAP1, "completed").start_ns,
                     world_wait_snapshot(&w, SNAP2, "completed").start_ns);
}

/* An image made of a snapshot: its volumes share one base, which is filled as they ask. */
static void images_of_snapshots_have_a_base(void **state)
{
    (void)state;
    struct test_disk d;
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    write_some(&d, shadow[0], 1, 30, 65536);
    world_close(&w, VOL1, INSTANCE, &d);
    world_snapshot(&w, SNAP1, VOL1);
    struct image i = {.id = STR(AMI1),
                      .account = STR(ACCOUNT),
                      .name = STR("made"),
                      .snapshot_id = STR(SNAP1),
                      .want = STR("present"),
                      .source = STR("instance"),
                      .size = GIB};
    world_put_image(&w, &i);
    struct volume made[3];
    for (int k = 0; k < 3; k++) {
        char id[40];
        snprintf(id, sizeof(id), "vol-%017d", 30 + k);
        made[k] = from_snapshot("", SNAP1);
        made[k].id = arena_str_dup(w.a, str_c(id));
        made[k].image_id = STR(AMI1);
        world_put_volume(&w, &made[k]);
        world_wait_volume(&w, id, "available");
        equals(arena_cstr(w.a, made[k].id), 0);
        assert_int_equal(world_allocated(&w, "volumes", id), 0);
    }
    uint64_t base = world_allocated(&w, "images", AMI1);
    assert_true(base >= 30 * 65536);
    /* writes are the writer's alone */
    copy_shadow(0, 1);
    world_open(&w, "vol-00000000000000030", INSTANCE, &d);
    write_some(&d, shadow[1], 9, 5, 4096);
    test_disk_equals(&d, shadow[1]);
    world_close(&w, "vol-00000000000000030", INSTANCE, &d);
    equals("vol-00000000000000031", 0);
    assert_int_equal(world_allocated(&w, "images", AMI1), base);
    /* the image and its snapshot go: who reads through the base goes on */
    i.want = STR("deleted");
    world_put_image(&w, &i);
    world_delete_snapshot(&w, SNAP1, VOL1);
    world_kill(&w, WORLD_BLOCK);
    world_restart(&w, WORLD_BLOCK);
    equals("vol-00000000000000030", 1);
    equals("vol-00000000000000032", 0);
    assert_int_equal(world_count(&w, "data/viperblock/images"), 1);
    world_delete_volume(&w, &v);
    for (int k = 0; k < 3; k++) {
        world_delete_volume(&w, &made[k]);
    }
    for (int k = 0; k < 1000 && world_count(&w, "data/viperblock/images") > 0; k++) {
        usleep(10000);
    }
    assert_int_equal(world_count(&w, "data/viperblock/images"), 0);
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_kept + u.n_pending + u.n_blocks + u.n_pages, 0);
}

/* What is written to an encrypted volume is nowhere to be found, also not in its snapshots. */
static void encrypted_volumes_show_nothing(void **state)
{
    (void)state;
    static const char mark[] = "a text that nobody but the guest may ever see";
    static char page[65536];
    struct test_disk d;
    struct volume v = world_volume(VOL1, 1);
    v.is_encrypted = true;
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    for (size_t i = 0; i + sizeof(mark) < sizeof(page); i += 512) {
        memcpy(page + i, mark, sizeof(mark));
    }
    AUTO_FD fd = open(shadow[0], O_WRONLY | O_CLOEXEC);
    for (off_t off = 0; off < 16 << 20; off += 1 << 20) {
        assert_int_equal(test_disk_write(&d, (uint64_t)off, page, sizeof(page)), 0);
        assert_int_equal(pwrite(fd, page, sizeof(page), off), sizeof(page));
    }
    assert_int_equal(test_disk_flush(&d), 0);
    struct snapshot s = world_snapshot_rec(SNAP1, VOL1);
    s.is_encrypted = true;
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, SNAP1, "completed");
    write_some(&d, shadow[0], 4, 3, 4096);
    world_kill_data(&w, INSTANCE);
    test_disk_equals(&d, shadow[0]);
    world_close(&w, VOL1, INSTANCE, &d);
    assert_false(world_has_bytes(w.data, mark, sizeof(mark) - 1));
    assert_false(world_has_bytes(w.run, mark, sizeof(mark) - 1));
    /* restored, also after everything of the node but its root key is gone */
    world_wipe_node(&w);
    struct volume r = from_snapshot(VOL2, SNAP1);
    r.is_encrypted = true;
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    world_open(&w, VOL2, INSTANCE, &d);
    for (off_t off = 0; off < 16 << 20; off += 1 << 20) {
        static char got[sizeof(page)];
        assert_int_equal(test_disk_read(&d, (uint64_t)off, got, sizeof(got)), 0);
        assert_memory_equal(page, got, sizeof(page));
    }
    world_close(&w, VOL2, INSTANCE, &d);
    assert_false(world_has_bytes(w.data, mark, sizeof(mark) - 1));
}

/* The volume, its maps and what the node knew are gone; the store has the snapshot. */
static void restored_after_the_node_is_lost(void **state)
{
    (void)state;
    struct test_disk d;
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    write_some(&d, shadow[0], 1, 30, 65536);
    world_snapshot(&w, SNAP1, VOL1);
    world_close(&w, VOL1, INSTANCE, &d);
    wait_no_processes();
    world_wipe_node(&w);
    assert_non_null(strstr(world_wait_volume(&w, VOL1, "error").fault.p, "lost"));
    struct volume r = from_snapshot(VOL2, SNAP1);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    equals(VOL2, 0);
}

/* A volume grows under its guest, and while nobody has it; what was there stays. */
static void volumes_grow(void **state)
{
    (void)state;
    struct test_disk d;
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    write_some(&d, shadow[0], 1, 10, 65536);
    world_modify(&w, &v, 3);
    assert_int_equal(world_wait_volume(&w, VOL1, "available").size_gib, 3);
    static char page[4096], got[4096];
    test_fill(page, sizeof(page), 77);
    assert_int_equal(test_disk_write(&d, 3 * GIB - BLOCK - 4096, page, sizeof(page)), 0);
    assert_int_equal(test_disk_flush(&d), 0);
    world_close(&w, VOL1, INSTANCE, &d);
    wait_no_processes();
    world_modify(&w, &v, 4);
    wait_no_processes();
    world_open(&w, VOL1, INSTANCE, &d);
    assert_int_equal(d.size, 4 * GIB);
    test_disk_equals(&d, shadow[0]);
    assert_int_equal(test_disk_read(&d, 3 * GIB - BLOCK - 4096, got, sizeof(got)), 0);
    assert_memory_equal(page, got, sizeof(page));
    /* and its snapshot has its new size */
    world_snapshot(&w, SNAP1, VOL1);
    world_close(&w, VOL1, INSTANCE, &d);
    struct volume r = from_snapshot(VOL2, SNAP1);
    r.size_gib = 4;
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    world_open(&w, VOL2, INSTANCE, &d);
    assert_int_equal(test_disk_read(&d, 3 * GIB - BLOCK - 4096, got, sizeof(got)), 0);
    assert_memory_equal(page, got, sizeof(page));
    world_close(&w, VOL2, INSTANCE, &d);
}

static void nbd_path(const char *method, const char *more, char out[PATH_MAX])
{
    char text[300];
    struct str answer = STR("");
    struct json *j = NULL;
    struct err err = ERR_INIT;
    snprintf(text, sizeof(text), "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"" VOL1 "\"%s}",
             more);
    if (world_call(&w, method, text, -1, &answer, NULL, &err) != 0) {
        fail_msg("%s: %s: %s", method, err.name, err.msg);
    }
    assert_int_equal(json_parse(answer, &j, NULL), 0);
    snprintf(out, PATH_MAX, "%.*s", STR_ARG(json_get_str(j, "path")));
    json_free(j);
}

/* Tools read and write over NBD; so does a guest that shares no memory, who counts as one. */
static void nbd_serves_tools_and_guests(void **state)
{
    (void)state;
    struct test_disk d;
    struct err err = ERR_INIT;
    char path[PATH_MAX], text[PATH_MAX * 6];
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    nbd_path("volume.nbd", "", path);
    snprintf(text, sizeof(text),
             "qemu-io -f raw -c 'write -P 0xab 1M 64k' -c flush 'nbd+unix:///" VOL1
             "?socket=%s' && head -c 65536 /dev/zero | tr '\\0' '\\253' | "
             "dd of='%s' bs=1M seek=1 conv=notrunc status=none",
             path, shadow[0]);
    world_sh(text);
    /* a second manager finds the export, and ends it */
    world_kill(&w, WORLD_BLOCK);
    world_restart(&w, WORLD_BLOCK);
    snprintf(text, sizeof(text),
             "qemu-img convert -f raw -O raw 'nbd+unix:///" VOL1 "?socket=%s' '%s.out' && "
             "cmp -n 67108864 '%s.out' '%s'; rm '%s.out'",
             path, shadow[1], shadow[1], shadow[0], shadow[1]);
    world_sh(text);
    assert_int_equal(world_call(&w, "volume.nbd_end",
                                "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"" VOL1 "\"}", -1,
                                NULL, NULL, &err),
                     0);
    wait_no_processes();
    nbd_path("volume.open",
             ",\"instance_id\":\"" INSTANCE "\",\"uid\":0,\"n_queues\":1,\"transport\":\"nbd\"",
             path);
    snprintf(text, sizeof(text),
             "(echo 'write -P 0xcd 2M 64k'; sleep 2; echo flush) | "
             "qemu-io -f raw 'nbd+unix:///" VOL1 "?socket=%s' & sleep 1",
             path);
    world_sh(text);
    assert_int_equal(world_call(&w, "volume.close",
                                "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"" VOL1
                                "\",\"instance_id\":\"" INSTANCE "\"}",
                                -1, NULL, NULL, &err),
                     -EBUSY);
    sleep(2);
    /* by vhost-user again: the same bytes */
    world_open(&w, VOL1, INSTANCE, &d);
    static char got[65536], want[65536];
    memset(want, 0xcd, sizeof(want));
    assert_int_equal(test_disk_read(&d, 2 << 20, got, sizeof(got)), 0);
    assert_memory_equal(got, want, sizeof(want));
    world_close(&w, VOL1, INSTANCE, &d);
}

/* Forced off: the guest sees errors, and another may have the volume at once. */
static void forced_detach_gives_up_the_volume(void **state)
{
    (void)state;
    struct test_disk d, e;
    struct err err = ERR_INIT;
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    write_some(&d, shadow[0], 1, 10, 65536);
    static char page[4096];
    assert_int_equal(world_call(&w, "volume.close",
                                "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"" VOL1
                                "\",\"instance_id\":\"" INSTANCE "\",\"is_forced\":true}",
                                -1, NULL, NULL, &err),
                     0);
    assert_int_not_equal(test_disk_write(&d, 0, page, sizeof(page)), 0);
    v.instance_id = STR("i-00000000000000002");
    world_put_volume(&w, &v);
    world_open(&w, VOL1, "i-00000000000000002", &e);
    test_disk_equals(&e, shadow[0]);
    write_some(&e, shadow[0], 2, 10, 4096);
    assert_int_not_equal(test_disk_write(&d, 0, page, sizeof(page)), 0);
    test_disk_close(&d);
    test_disk_equals(&e, shadow[0]);
    world_close(&w, VOL1, "i-00000000000000002", &e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(snapshots_are_points_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_are_of_one_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(images_of_snapshots_have_a_base, setup, teardown),
        cmocka_unit_test_setup_teardown(encrypted_volumes_show_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(restored_after_the_node_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(volumes_grow, setup, teardown),
        cmocka_unit_test_setup_teardown(nbd_serves_tools_and_guests, setup, teardown),
        cmocka_unit_test_setup_teardown(forced_detach_gives_up_the_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_at_any_moment, setup, teardown),
    };
    if (argc < 5) {
        fprintf(stderr,
                "usage: block_test SPX SPX-STATE SPX-PREDASTORE SPX-VIPERBLOCK [TEST]\n");
        return 2;
    }
    args = argv;
    if (argc > 5) {
        cmocka_set_test_filter(argv[5]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
