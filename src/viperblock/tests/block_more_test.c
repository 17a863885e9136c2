#include "viperblock/tests/block_world.h"

#include "base/file.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "crypto/digest.h"
#include "model/keys.h"
#include "net/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The rest of what becomes of volumes and snapshots: images that are imported, copies, the EBS
 * direct side, keys that are not there, volumes of the previous format, checks. */

#define BLOCK (512u << 10)
#define VOL1  "vol-00000000000000001"
#define VOL2  "vol-00000000000000002"
#define SNAP1 "snap-00000000000000001"
#define SNAP2 "snap-00000000000000002"
#define OTHER "000000000002"

static char **args;
static struct world w;
static char disk[PATH_MAX];

static int setup(void **state)
{
    static char buf[BLOCK];
    (void)state;
    world_init(&w, args);
    tmpdir_write(&w.dir, "disk.raw", "", disk);
    AUTO_FD fd = open(disk, O_RDWR | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 16 << 20), 0);
    for (unsigned i = 0; i < 9; i++) {
        test_fill(buf, 8192, i + 1);
        assert_int_equal(pwrite(fd, buf, 8192, (off_t)i * 1769472), 8192);
    }
    assert_int_equal(pwrite(fd, "\x55\xaa", 2, 510), 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static struct volume from_snapshot(const char *id, const char *snap)
{
    struct volume v = world_volume(id, 1);
    v.snapshot_id = arena_str_dup(w.a, str_c(snap));
    v.snapshot_account = STR(ACCOUNT);
    return v;
}

static void equals(const char *id)
{
    struct test_disk d;
    world_open(&w, id, INSTANCE, &d);
    test_disk_equals(&d, disk);
    world_close(&w, id, INSTANCE, &d);
}

static void write_disk(const char *volume)
{
    static char buf[BLOCK];
    struct test_disk d;
    AUTO_FD fd = open(disk, O_RDONLY | O_CLOEXEC);
    world_open(&w, volume, INSTANCE, &d);
    for (off_t off = 0; off < 16 << 20; off += BLOCK) {
        assert_int_equal(pread(fd, buf, BLOCK, off), BLOCK);
        assert_int_equal(test_disk_write(&d, (uint64_t)off, buf, BLOCK), 0);
    }
    assert_int_equal(test_disk_flush(&d), 0);
    world_close(&w, volume, INSTANCE, &d);
}

static void snapshot_of_disk(const char *id, bool is_encrypted)
{
    struct volume v = world_volume(VOL1, 1);
    v.is_encrypted = is_encrypted;
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    write_disk(VOL1);
    struct snapshot s = world_snapshot_rec(id, VOL1);
    s.is_encrypted = is_encrypted;
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, id, "completed");
}

/* An image is usable at once, and safe a moment later: its snapshot is in the store. */
static void imports_are_snapshots(void **state)
{
    (void)state;
    struct str answer = STR("");
    struct json *j = NULL;
    struct err err = ERR_INIT;
    int fd = open(disk, O_RDONLY | O_CLOEXEC);
    assert_int_equal(world_call(&w, "image.import",
                                "{\"account\":\"" ACCOUNT "\",\"name\":\"one\"}", fd, &answer,
                                NULL, &err),
                     0);
    close(fd);
    assert_int_equal(json_parse(answer, &j, NULL), 0);
    const char *image = arena_cstr(w.a, json_get_str(j, "image_id"));
    const char *snap = arena_cstr(w.a, json_get_str(j, "snapshot_id"));
    json_free(j);
    struct volume v = world_volume(VOL1, 1);
    v.image_id = str_c(image);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    equals(VOL1);
    assert_int_equal(world_allocated(&w, "volumes", VOL1), 0);
    struct snapshot_status st = world_wait_snapshot(&w, snap, "completed");
    assert_true(st.full_bytes >= 9 * BLOCK && st.full_bytes <= 18 * BLOCK);
    /* an increment of it, by a volume that read through it */
    struct test_disk d;
    static char page[4096];
    test_fill(page, sizeof(page), 55);
    world_open(&w, VOL1, INSTANCE, &d);
    assert_int_equal(test_disk_write(&d, 0, page, sizeof(page)), 0);
    assert_int_equal(test_disk_flush(&d), 0);
    world_snapshot(&w, SNAP1, VOL1);
    world_close(&w, VOL1, INSTANCE, &d);
    assert_int_equal(world_wait_snapshot(&w, SNAP1, "completed").new_bytes, BLOCK);
    /* everything of the node is lost: both are still there */
    world_wipe_node(&w);
    struct volume r = from_snapshot(VOL2, snap);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    equals(VOL2);
    struct volume r2 = from_snapshot("vol-00000000000000003", SNAP1);
    world_put_volume(&w, &r2);
    world_wait_volume(&w, "vol-00000000000000003", "available");
    fd = open(disk, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, page, sizeof(page), 0), sizeof(page));
    close(fd);
    equals("vol-00000000000000003");
}

/* Within an account, to another encryption: the same bytes; and gone without a trace. */
static void copies_are_independent(void **state)
{
    (void)state;
    snapshot_of_disk(SNAP1, false);
    struct snapshot s = world_snapshot_rec(SNAP2, "vol-ffffffff");
    s.source = STR("copy");
    s.from_id = STR(SNAP1);
    s.from_account = STR(ACCOUNT);
    s.is_encrypted = true;
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, SNAP2, "completed");
    world_delete_snapshot(&w, SNAP1, VOL1);
    struct volume r = from_snapshot(VOL2, SNAP2);
    r.is_encrypted = true;
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    equals(VOL2);
    /* a volume that is not encrypted is not made of it */
    struct volume bad = from_snapshot("vol-00000000000000003", SNAP2);
    world_put_volume(&w, &bad);
    world_wait_volume(&w, "vol-00000000000000003", "error");
    /* a copy of nothing fails */
    struct snapshot t = world_snapshot_rec("snap-00000000000000003", "vol-ffffffff");
    t.source = STR("copy");
    t.from_id = STR("snap-00000000000000009");
    world_put_snapshot(&w, &t);
    struct snapshot u = world_snapshot_rec("snap-00000000000000004", "vol-00000000000000077");
    world_put_snapshot(&w, &u);
    assert_non_null(
        strstr(world_wait_snapshot(&w, "snap-00000000000000004", "error").reason.p, "volume"));
    world_delete_volume(&w, &r);
    struct volume v = world_volume(VOL1, 1);
    v.generation = 5;
    world_delete_volume(&w, &v);
    s.want = STR("deleted");
    s.generation = 2;
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, SNAP2, "deleted");
    struct snap_usage x = world_usage(&w);
    assert_int_equal(x.n_manifests + x.n_kept + x.n_pending + x.n_blocks + x.n_pages, 0);
}

/* --- EBS direct ----------------------------------------------------------------------------- */

static int put_block(const char *snap, unsigned block, const char *data, struct err *err)
{
    char text[300], sum[64];
    uint8_t digest[SHA256_SIZE];
    AUTO_BUF b;
    buf_init(&b, 64);
    sha256(str_n(data, BLOCK), digest);
    base64_encode(str_n((const char *)digest, sizeof(digest)), &b);
    snprintf(sum, sizeof(sum), "%s", buf_cstr(&b));
    snprintf(text, sizeof(text),
             "{\"account\":\"" ACCOUNT
             "\",\"snapshot_id\":\"%s\",\"block\":%u,\"checksum\":\"%s\"}",
             snap, block, sum);
    AUTO_FD fd = memfd_create("block", MFD_CLOEXEC);
    assert_int_equal(write(fd, data, BLOCK), BLOCK);
    int rc = -EAGAIN;
    for (int i = 0; i < 500 && rc == -EAGAIN; i++) { /* begun, and not yet seen to be */
        err_clear(err);
        rc = world_call(&w, "block.put", text, fd, NULL, NULL, err);
        usleep(rc == -EAGAIN ? 20000 : 0);
    }
    return rc;
}

static void blocks_are_written_and_read(void **state)
{
    static char data[3][BLOCK], got[BLOCK];
    (void)state;
    struct err err = ERR_INIT;
    struct str answer = STR("");
    uint8_t sums[3 * SHA256_SIZE], all[SHA256_SIZE];
    struct snapshot s = world_snapshot_rec(SNAP1, "vol-ffffffff");
    s.source = STR("ebs");
    s.timeout_min = 60;
    s.create_ns = time_wall_ns();
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, SNAP1, "pending");
    world_wait_started(&w, SNAP1);
    for (unsigned i = 0; i < 3; i++) {
        test_fill(data[i], BLOCK, 100 + i);
        sha256(str_n(data[i], BLOCK), &sums[i * SHA256_SIZE]);
        assert_int_equal(put_block(SNAP1, i * 700, data[(i + 1) % 3], &err), 0);
        if (i == 1) { /* killed in between */
            world_kill(&w, WORLD_BLOCK);
            world_restart(&w, WORLD_BLOCK);
        }
        assert_int_equal(put_block(SNAP1, i * 700, data[i], &err), 0); /* the last counts */
    }
    assert_int_equal(put_block(SNAP1, 2048, data[0], &err), -EINVAL);
    AUTO_BUF b;
    buf_init(&b, 64);
    sha256(str_n((const char *)sums, sizeof(sums)), all);
    base64_encode(str_n((const char *)all, sizeof(all)), &b);
    s.is_complete_wanted = true;
    s.changed_blocks = 3;
    s.checksum = buf_str(&b);
    s.generation = 2;
    world_put_snapshot(&w, &s);
    assert_int_equal(world_wait_snapshot(&w, SNAP1, "completed").full_bytes, 3 * BLOCK);
    err_clear(&err);
    assert_int_equal(put_block(SNAP1, 1, data[0], &err), -EPERM);
    err_clear(&err);
    assert_int_equal(world_call(&w, "block.list",
                                "{\"account\":\"" ACCOUNT "\",\"snapshot_id\":\"" SNAP1
                                "\",\"from\":0,\"max\":2}",
                                -1, &answer, NULL, &err),
                     0);
    assert_non_null(strstr(arena_cstr(w.a, answer), "\"blocks\":[0,700]"));
    assert_non_null(strstr(arena_cstr(w.a, answer), "\"next\":1400"));
    int fd = -1;
    assert_int_equal(world_call(&w, "block.get",
                                "{\"account\":\"" ACCOUNT "\",\"snapshot_id\":\"" SNAP1
                                "\",\"block\":1400}",
                                -1, &answer, &fd, &err),
                     0);
    assert_int_equal(pread(fd, got, BLOCK, 0), BLOCK);
    close(fd);
    assert_memory_equal(got, data[2], BLOCK);
    assert_int_equal(world_call(&w, "block.get",
                                "{\"account\":\"" ACCOUNT "\",\"snapshot_id\":\"" SNAP1
                                "\",\"block\":1}",
                                -1, NULL, NULL, &err),
                     -ENOENT);
    err_clear(&err);
    assert_int_equal(world_call(&w, "block.changed",
                                "{\"account\":\"" ACCOUNT
                                "\",\"snapshot_id\":\"\",\"other_account\":\"" ACCOUNT
                                "\",\"other_id\":\"" SNAP1 "\",\"from\":1,\"max\":10}",
                                -1, &answer, NULL, &err),
                     0);
    assert_non_null(strstr(arena_cstr(w.a, answer), "[[700,false,true],[1400,false,true]]"));
    /* one whose writer says something else is an error, and leaves nothing */
    s.id = STR(SNAP2);
    s.is_complete_wanted = false;
    s.generation = 1;
    world_put_snapshot(&w, &s);
    world_wait_started(&w, SNAP2);
    err_clear(&err);
    assert_int_equal(put_block(SNAP2, 5, data[0], &err), 0);
    s.is_complete_wanted = true;
    s.changed_blocks = 2;
    s.generation = 2;
    world_put_snapshot(&w, &s);
    assert_non_null(strstr(world_wait_snapshot(&w, SNAP2, "error").reason.p, "number"));
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_blocks, 3);
    assert_int_equal(u.n_pending, 0);
    assert_int_equal(world_count(&w, "data/viperblock/ebs"), 0);
}

/* --- keys, formats, checks ------------------------------------------------------------------ */

/* Without its root key the node serves what is plain; encrypted volumes wait, and go on when it
 * comes. */
static void encrypted_volumes_wait_for_the_root_key(void **state)
{
    (void)state;
    char text[PATH_MAX * 3];
    struct err err = ERR_INIT;
    struct str answer = STR("");
    snapshot_of_disk(SNAP1, true);
    world_stop(&w, WORLD_BLOCK);
    snprintf(text, sizeof(text), "mv '%s/viperblock/root.key' '%s/away'", w.data, w.data);
    world_sh(text);
    world_start(&w, WORLD_BLOCK);
    struct volume plain = world_volume(VOL2, 1), enc = world_volume("vol-00000000000000003", 1);
    enc.is_encrypted = true;
    world_put_volume(&w, &plain);
    world_put_volume(&w, &enc);
    world_wait_volume(&w, VOL2, "available");
    struct volume_status st = world_wait_volume(&w, "vol-00000000000000003", "creating");
    for (int i = 0; i < 500 && !strstr(arena_cstr(w.a, st.reason), "root key"); i++) {
        usleep(20000);
        st = world_wait_volume(&w, "vol-00000000000000003", "creating");
    }
    assert_non_null(strstr(arena_cstr(w.a, st.reason), "root key"));
    snprintf(text, sizeof(text),
             "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"" VOL1
             "\",\"instance_id\":\"" INSTANCE "\",\"uid\":0,\"n_queues\":1}");
    assert_int_equal(world_call(&w, "volume.open", text, -1, NULL, NULL, &err), -EACCES);
    assert_string_equal(err.name, "Locked");
    for (int i = 0; i < 500 && !strstr(arena_cstr(w.a, answer), "locked"); i++) {
        err_clear(&err);
        assert_int_equal(world_call(&w, "health", "{}", -1, &answer, NULL, &err), 0);
        usleep(20000);
    }
    assert_non_null(strstr(arena_cstr(w.a, answer), "locked"));
    snprintf(text, sizeof(text), "mv '%s/away' '%s/viperblock/root.key'", w.data, w.data);
    world_sh(text);
    world_wait_volume(&w, "vol-00000000000000003", "available");
    equals(VOL1);
}

/* A volume of the first format: its bytes stay where they are, and it can be frozen from now on. */
static void volumes_of_version_1_open_as_they_are(void **state)
{
    (void)state;
    char text[PATH_MAX * 4];
    world_stop(&w, WORLD_BLOCK);
    snprintf(text, sizeof(text),
             "cd '%s/viperblock/volumes' && mkdir -m 700 " VOL1 " && cd " VOL1
             " && cp --sparse=always '%s' data && truncate -s 1G data && printf "
             "'{\"v\":1,\"id\":\"" VOL1 "\",\"account\":\"" ACCOUNT
             "\",\"layout\":\"raw\",\"size\":1073741824,\"create_ns\":1}' >meta.json",
             w.data, disk);
    world_sh(text);
    world_start(&w, WORLD_BLOCK);
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    equals(VOL1);
    world_snapshot(&w, SNAP1, VOL1);
    struct volume r = from_snapshot(VOL2, SNAP1);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    equals(VOL2);
}

static size_t n_problems(const char *text, uint64_t *ret_volumes)
{
    struct str answer = STR("");
    struct json *j = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(world_call(&w, "volume.check", text, -1, &answer, NULL, &err), 0);
    assert_int_equal(json_parse(answer, &j, NULL), 0);
    size_t n = json_len(json_get(j, "problems"));
    *ret_volumes = json_get_u64(j, "volumes", 0);
    json_free(j);
    return n;
}

/* Volumes of another account's image, and encrypted ones of a plain image: their first snapshot has
 * everything, for what they came from is no parent of it. */
static void first_snapshots_are_whole(void **state)
{
    (void)state;
    struct str answer = STR("");
    struct json *j = NULL;
    struct test_disk d;
    struct err err = ERR_INIT;
    static char page[4096];
    int fd = open(disk, O_RDWR | O_CLOEXEC);
    assert_int_equal(world_call(&w, "image.import",
                                "{\"account\":\"" OTHER "\",\"name\":\"theirs\"}", fd, &answer,
                                NULL, &err),
                     0);
    assert_int_equal(json_parse(answer, &j, NULL), 0);
    const char *image = arena_cstr(w.a, json_get_str(j, "image_id"));
    json_free(j);
    test_fill(page, sizeof(page), 31);
    assert_int_equal(pwrite(fd, page, sizeof(page), 5 << 20), sizeof(page));
    close(fd);
    for (unsigned i = 0; i < 2; i++) {
        char vol[40], snap[40], out[40];
        snprintf(vol, sizeof(vol), "vol-%017u", 10 + i);
        snprintf(out, sizeof(out), "vol-%017u", 20 + i);
        snprintf(snap, sizeof(snap), "snap-%017u", 10 + i);
        struct volume v = world_volume(vol, 1);
        v.image_id = str_c(image);
        v.is_encrypted = i == 1;
        world_put_volume(&w, &v);
        world_wait_volume(&w, vol, "available");
        world_open(&w, vol, INSTANCE, &d);
        assert_int_equal(test_disk_write(&d, 5 << 20, page, sizeof(page)), 0);
        assert_int_equal(test_disk_flush(&d), 0);
        struct snapshot s = world_snapshot_rec(snap, vol);
        s.is_encrypted = i == 1;
        world_put_snapshot(&w, &s);
        world_wait_snapshot(&w, snap, "completed");
        world_close(&w, vol, INSTANCE, &d);
        struct volume r = from_snapshot(out, snap);
        r.is_encrypted = i == 1;
        world_put_volume(&w, &r);
        world_wait_volume(&w, out, "available");
        equals(out);
    }
}

/* The image is gone while a guest reads through its base: what is absent is copied, then it
 * goes. */
static void a_base_goes_when_its_readers_are_filled(void **state)
{
    (void)state;
    struct str answer = STR("");
    struct json *j = NULL;
    struct test_disk d;
    struct err err = ERR_INIT;
    char text[100];
    int fd = open(disk, O_RDONLY | O_CLOEXEC);
    assert_int_equal(world_call(&w, "image.import",
                                "{\"account\":\"" ACCOUNT "\",\"name\":\"one\"}", fd, &answer,
                                NULL, &err),
                     0);
    close(fd);
    assert_int_equal(json_parse(answer, &j, NULL), 0);
    const char *image = arena_cstr(w.a, json_get_str(j, "image_id"));
    json_free(j);
    struct volume v = world_volume(VOL1, 1);
    v.image_id = str_c(image);
    world_put_volume(&w, &v);
    assert_true(world_wait_volume(&w, VOL1, "available").absent > 0);
    world_open(&w, VOL1, INSTANCE, &d);
    snprintf(text, sizeof(text), "{\"image_id\":\"%s\"}", image);
    assert_int_equal(world_call(&w, "image.remove", text, -1, NULL, NULL, &err), 0);
    for (int i = 0; i < 1500 && world_count(&w, "data/viperblock/images") > 0; i++) {
        usleep(20000);
    }
    assert_int_equal(world_count(&w, "data/viperblock/images"), 0);
    test_disk_equals(&d, disk);
    world_kill_data(&w, INSTANCE);
    test_disk_equals(&d, disk);
    assert_int_equal(world_wait_volume(&w, VOL1, "available").absent, 0);
    world_close(&w, VOL1, INSTANCE, &d);
    equals(VOL1);
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_pending, 0);
}

struct reader {
    struct test_disk d;
    char got[4096];
    int rc;
};

static void *read_one(void *ctx)
{
    struct reader *r = ctx;
    r->rc = test_disk_read(&r->d, 1769472, r->got, sizeof(r->got));
    return NULL;
}

/* A store that is away makes a guest wait, and shows in the volume's health. */
static void a_store_that_is_away_is_waited_for(void **state)
{
    (void)state;
    static char page[4096];
    static struct reader reader;
    pthread_t thread;
    snapshot_of_disk(SNAP1, false);
    struct volume r = from_snapshot(VOL2, SNAP1);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    world_kill(&w, WORLD_STORE);
    world_open(&w, VOL2, INSTANCE, &reader.d);
    assert_int_equal(pthread_create(&thread, NULL, read_one, &reader), 0);
    struct volume_status st = world_wait_volume(&w, VOL2, "available");
    for (int i = 0; i < 500 && !str_eqc(st.fault, "store-away"); i++) {
        usleep(20000);
        st = world_wait_volume(&w, VOL2, "available");
    }
    assert_str(st.fault, "store-away");
    assert_str(st.health, "impaired");
    world_start(&w, WORLD_STORE);
    pthread_join(thread, NULL);
    assert_int_equal(reader.rc, 0);
    AUTO_FD fd = open(disk, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, page, sizeof(page), 1769472), sizeof(page));
    assert_memory_equal(page, reader.got, sizeof(page));
    for (int i = 0; i < 500 && st.fault.n > 0; i++) {
        usleep(20000);
        st = world_wait_volume(&w, VOL2, "available");
    }
    assert_int_equal(st.fault.n, 0);
    world_close(&w, VOL2, INSTANCE, &reader.d);
}

/* Its parent is gone, and the gateway has not forgotten it yet: the root that the store keeps is
 * parent enough. */
static void an_increment_does_not_wait_for_a_deleted_snapshot(void **state)
{
    (void)state;
    snapshot_of_disk(SNAP1, false);
    struct snapshot s = world_snapshot_rec(SNAP1, VOL1);
    s.want = STR("deleted");
    s.generation = 2;
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, SNAP1, "deleted");
    world_snapshot(&w, SNAP2, VOL1);
    struct volume r = from_snapshot(VOL2, SNAP2);
    world_put_volume(&w, &r);
    world_wait_volume(&w, VOL2, "available");
    equals(VOL2);
    /* what is a copy of nothing says so */
    s = world_snapshot_rec("snap-00000000000000003", VOL1);
    s.want = STR("deleted");
    world_put_snapshot(&w, &s);
    world_wait_snapshot(&w, "snap-00000000000000003", "deleted");
    struct snapshot t = world_snapshot_rec("snap-00000000000000004", "vol-ffffffff");
    t.source = STR("copy");
    t.from_id = STR("snap-00000000000000003");
    t.from_account = STR(ACCOUNT);
    world_put_snapshot(&w, &t);
    world_wait_snapshot(&w, "snap-00000000000000004", "error");
}

/* What is damaged or left over is told, and nothing is touched. */
static void checks_tell(void **state)
{
    (void)state;
    char text[PATH_MAX * 3];
    uint64_t n = 0;
    struct str answer = STR("");
    struct err err = ERR_INIT;
    snapshot_of_disk(SNAP1, false);
    assert_int_equal(n_problems("{\"is_deep\":true}", &n), 0);
    assert_int_equal(n, 1);
    snprintf(text, sizeof(text),
             "cd '%s/viperblock/volumes' && cp -r " VOL1 " " VOL2 " && truncate -s 5M " VOL2
             "/data && sed -i s/" VOL1 "/" VOL2 "/ " VOL2 "/meta.json",
             w.data);
    world_sh(text);
    assert_int_equal(n_problems("{}", &n), 1);
    assert_int_equal(n, 2);
    world_delete(&w, "snapshot", SNAP1);
    assert_int_equal(world_call(&w, "volume.orphans", "{}", -1, &answer, NULL, &err), 0);
    for (int i = 0; i < 500 && !strstr(arena_cstr(w.a, answer), SNAP1); i++) {
        usleep(10000);
        assert_int_equal(world_call(&w, "volume.orphans", "{}", -1, &answer, NULL, &err), 0);
    }
    assert_non_null(strstr(arena_cstr(w.a, answer), VOL2));
    assert_non_null(strstr(arena_cstr(w.a, answer), SNAP1));
    assert_null(strstr(arena_cstr(w.a, answer), VOL1));
    assert_int_equal(world_call(&w, "volume.list", "{}", -1, &answer, NULL, &err), 0);
    assert_non_null(strstr(arena_cstr(w.a, answer), "\"id\":\"" VOL1 "\""));
    assert_int_equal(world_call(&w, "metrics", "{}", -1, &answer, NULL, &err), 0);
    assert_non_null(strstr(arena_cstr(w.a, answer), "spinifex_volume_ops_total"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(imports_are_snapshots, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_are_independent, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_are_written_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(encrypted_volumes_wait_for_the_root_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(volumes_of_version_1_open_as_they_are, setup, teardown),
        cmocka_unit_test_setup_teardown(first_snapshots_are_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(a_base_goes_when_its_readers_are_filled, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_store_that_is_away_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(an_increment_does_not_wait_for_a_deleted_snapshot,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(checks_tell, setup, teardown),
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
