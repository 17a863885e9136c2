#include "base/time.h"
#include "model/keys.h"
#include "viperblock/test_env.h"
#include "viperblock/vb.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define GIB   (INT64_C(1) << 30)
#define INST  "i-00000000000000001"
#define OTHER "i-00000000000000002"

static struct tmpdir tmp;

static int setup(void **state)
{
    struct env *e = malloc(sizeof(*e));
    tmpdir_init(&tmp, "vb");
    env_init(e, tmp.path);
    env_start(e);
    *state = e;
    return 0;
}

static int teardown(void **state)
{
    env_stop(*state);
    env_end_processes(*state);
    free(*state);
    tmpdir_done(&tmp);
    return 0;
}

static struct volume volume(const char *id, uint64_t gib)
{
    return (struct volume){.id = str_c(id),
                           .account = STR(TEST_ACCOUNT),
                           .generation = 1,
                           .want = STR("present"),
                           .node = STR("node1"),
                           .size_gib = gib,
                           .type = STR("gp3"),
                           .instance_id = STR(INST)};
}

static const char *path_of(struct env *e, const char *kind, const char *id, const char *file)
{
    static char path[2][PATH_MAX * 2];
    static unsigned i;
    i ^= 1;
    snprintf(path[i], sizeof(path[i]), "%s/%s/%s/%s", e->data, kind, id, file);
    return path[i];
}

static void empty_volume(void **state)
{
    struct env *e = *state;
    struct stat st;
    struct volume v = volume("vol-00000000000000001", 3);
    env_put_volume(e, &v);
    const struct volume_status *s = env_wait_volume(e, "vol-00000000000000001", "available");
    assert_int_equal(s->generation, 1);
    assert_int_equal(stat(path_of(e, "volumes", "vol-00000000000000001", "data"), &st), 0);
    assert_int_equal(st.st_size, 3 * GIB);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(st.st_blocks < 64);
    assert_int_equal(access(path_of(e, "volumes", "vol-00000000000000001", "meta.json"), R_OK),
                     0);
    /* deleted, then forgotten when awsgw takes the record away */
    v.want = STR("deleted");
    v.generation = 2;
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000001", "deleted");
    assert_int_equal(env_count(e, "volumes") + env_count(e, "trash"), 0);
    struct kv_op op = {.type = KV_DELETE, .key = key_spec(e->a, "volume", v.account, v.id)};
    assert_int_equal(kv_txn(e->kv, NULL, 0, &op, 1, NULL, NULL), 0);
    for (int i = 0; i < 2000 && env_get(e, key_status(e->a, "volume", v.account, v.id)).n > 0;
         i++) {
        usleep(5000);
    }
    assert_int_equal(env_get(e, key_status(e->a, "volume", v.account, v.id)).n, 0);
}

static void bad_volumes(void **state)
{
    struct env *e = *state;
    struct volume v = volume("vol-00000000000000001", 0);
    env_put_volume(e, &v);
    assert_non_null(
        strstr(env_wait_volume(e, "vol-00000000000000001", "error")->reason.p, "size"));
    v = volume("vol-00000000000000002", 1);
    v.snapshot_id = STR("snap-00000000000000009");
    env_put_volume(e, &v);
    assert_non_null(
        strstr(env_wait_volume(e, "vol-00000000000000002", "error")->reason.p, "snap-"));
    v = volume("vol-00000000000000003", 1);
    v.image_id = STR("../../../../etc");
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000003", "error");
    v = volume("vol-00000000000000004", 1);
    v.node = STR("elsewhere");
    env_put_volume(e, &v);
    v = volume("vol-00000000000000005", 1);
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000005", "available");
    assert_int_equal(
        env_get(e, key_status(e->a, "volume", v.account, STR("vol-00000000000000004"))).n, 0);
    assert_int_equal(env_count(e, "volumes"), 1);
}

static void import_registers(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32];
    tmpdir_path(&tmp, "disk.raw", disk);
    make_disk(disk, 24);
    assert_int_equal(env_import(e, disk, "debian 12/test",
                                "\"description\":\"d\",\"is_public\":true,\"format\":\"raw\"",
                                id, &err),
                     0);
    assert_true(__atomic_load_n(&e->n_events, __ATOMIC_SEQ_CST) >= 2);
    const struct image *i = env_get_image(e, id);
    assert_non_null(i);
    assert_str(i->name, "debian 12/test");
    assert_str(i->want, "present");
    assert_int_equal(i->size, 24 << 20);
    assert_true(i->is_public);
    assert_true(same_bytes(disk, path_of(e, "images", id, "data")));
    assert_int_equal(access(path_of(e, "images", id, "unregistered"), F_OK), -1);
    assert_int_equal(access(path_of(e, "images", id, "source"), F_OK), -1);
    assert_str(env_get(e, STR("claim/imagename/" TEST_ACCOUNT "/debian 12/test")), id);
    assert_non_null(
        strstr(env_get(e, key_status(e->a, "image", i->account, i->id)).p, "available"));
    assert_non_null(
        strstr(env_get(e, key_spec(e->a, "snapshot", i->account, i->snapshot_id)).p, id));
}

/* The same name again, bad names, a wrong checksum: nothing is left. */
static void refused_imports(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32], id2[32];
    make_disk(tmpdir_path(&tmp, "disk.raw", disk), 4);
    assert_int_equal(env_import(e, disk, "debian 12/test", "", id, &err), 0);
    assert_int_equal(env_import(e, disk, "debian 12/test", "", id2, &err), -EEXIST);
    assert_string_equal(err.name, "InvalidAMIName.Duplicate");
    static const struct {
        const char *name, *more, *want;
    } bad[] = {
        {"ab", "", "InvalidAMIName.Malformed"},
        {"a\\u0000bc", "", "InvalidAMIName.Malformed"},
        {"semi;colon", "", "InvalidAMIName.Malformed"},
        {"good name",
         "\"sha256\":\"0000000000000000000000000000000000000000000000000000000000000000\"",
         "ChecksumMismatch"},
        {"good name", "\"sha256\":\"xyz\"", "BadArgument"},
        {"good name", "\"arch\":\"vax\"", "BadArgument"},
        {"good name", "\"root_device\":\"sda\"", "BadArgument"},
        {"good name", "\"format\":\"floppy\"", "BadFormat"},
        {"good name", "\"format\":\"qcow2\"", "BadImage"},
    };
    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        err_clear(&err);
        assert_true(env_import(e, disk, bad[k].name, bad[k].more, id2, &err) < 0);
        assert_string_equal(err.name, bad[k].want);
        assert_int_equal(env_count(e, "images"), 1);
    }
}

/* No volume copies what it only reads; the base goes with the last that reads through it. */
static void clones_and_removal(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32], id2[32];
    struct test_disk d;
    make_disk(tmpdir_path(&tmp, "disk.raw", disk), 24);
    assert_int_equal(env_import(e, disk, "debian 12/test", "", id, &err), 0);
    const struct image *i = env_get_image(e, id);
    assert_non_null(i);
    struct volume v = volume("vol-00000000000000001", 2),
                  w = volume("vol-00000000000000002", 1);
    v.image_id = str_c(id);
    env_put_volume(e, &v);
    char snap[40];
    snprintf(snap, sizeof(snap), "%.*s", STR_ARG(i->snapshot_id));
    w.snapshot_id = str_c(snap);
    env_put_volume(e, &w);
    env_wait_volume(e, "vol-00000000000000001", "available");
    env_wait_volume(e, "vol-00000000000000002", "available");
    struct stat st;
    assert_int_equal(stat(path_of(e, "volumes", "vol-00000000000000001", "data"), &st), 0);
    assert_int_equal(st.st_size, 2 * GIB);
    env_volume_equals(e, "vol-00000000000000001", INST, disk);
    env_volume_equals(e, "vol-00000000000000002", INST, disk);
    assert_int_equal(stat(path_of(e, "volumes", "vol-00000000000000001", "data"), &st), 0);
    assert_int_equal(st.st_blocks, 0);
    /* one writes: the other does not see it */
    char page[8192], got[8192];
    test_fill(page, sizeof(page), 1);
    assert_int_equal(env_open(e, "vol-00000000000000001", INST, &d, &err), 0);
    assert_int_equal(test_disk_write(&d, 384 << 10, page, sizeof(page)), 0);
    assert_int_equal(test_disk_flush(&d), 0);
    assert_int_equal(test_disk_read(&d, 384 << 10, got, sizeof(got)), 0);
    assert_memory_equal(page, got, sizeof(page));
    test_disk_close(&d);
    env_volume_equals(e, "vol-00000000000000002", INST, disk);
    /* removal: record and claim go at once; the base stays while volumes read through it */
    char args[100];
    snprintf(args, sizeof(args), "{\"image_id\":\"%s\"}", id);
    assert_int_equal(env_call(e, "image.remove", args, NULL, &err), 0);
    for (int k = 0; k < 2000 && env_get_image(e, id); k++) {
        usleep(5000);
    }
    assert_null(env_get_image(e, id));
    assert_int_equal(env_get(e, STR("claim/imagename/" TEST_ACCOUNT "/debian 12/test")).n, 0);
    int rc = -EAGAIN; /* as long as the first removal goes on */
    for (int k = 0; k < 2000 && rc == -EAGAIN; k++) {
        rc = env_call(e, "image.remove", args, NULL, &err);
        usleep(5000);
    }
    assert_int_equal(rc, -ENOENT);
    env_stop(e);
    env_start(e);
    env_volume_equals(e, "vol-00000000000000002", INST, disk);
    assert_int_equal(env_count(e, "images"), 1);
    v.want = w.want = STR("deleted");
    v.generation = w.generation = 2;
    env_put_volume(e, &v);
    env_put_volume(e, &w);
    env_wait_volume(e, "vol-00000000000000001", "deleted");
    env_wait_volume(e, "vol-00000000000000002", "deleted");
    for (int k = 0; k < 2000 && env_count(e, "images") + env_count(e, "trash") > 0; k++) {
        usleep(5000);
    }
    assert_int_equal(env_count(e, "images") + env_count(e, "trash"), 0);
    err_clear(&err);
    assert_int_equal(env_import(e, disk, "debian 12/test", "", id2, &err), 0);
}

static void open_is_exclusive(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    struct test_disk d, d2;
    char page[4096], got[4096];
    struct volume v = volume("vol-00000000000000001", 1);
    assert_int_equal(env_open(e, "vol-00000000000000001", INST, &d, &err), -ENOENT);
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000001", "available");
    err_clear(&err);
    assert_int_equal(env_open(e, "vol-00000000000000001", OTHER, &d, &err), -EPERM);
    err_clear(&err);
    assert_int_equal(env_open(e, "../../etc/passwd", INST, &d, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(env_open(e, "vol-00000000000000001", INST, &d, &err), 0);
    test_fill(page, sizeof(page), 3);
    assert_int_equal(test_disk_write(&d, 4096, page, sizeof(page)), 0);
    assert_int_equal(env_close(e, "vol-00000000000000001", INST, false, &err), -EBUSY);
    /* another instance does not get it while the guest of the first has it */
    v.instance_id = STR(OTHER);
    v.generation = 2;
    env_put_volume(e, &v);
    for (int i = 0; i < 400; i++) {
        err_clear(&err);
        int rc = env_open(e, "vol-00000000000000001", OTHER, &d2, &err);
        assert_true(rc == -EBUSY || rc == -EPERM);
        if (rc == -EBUSY) {
            break;
        }
        usleep(5000);
    }
    assert_string_equal(err.name, "VolumeInUse");
    /* the guest's disk outlives the service */
    env_stop(e);
    assert_int_equal(test_disk_read(&d, 4096, got, sizeof(got)), 0);
    assert_memory_equal(page, got, sizeof(page));
    env_start(e);
    err_clear(&err);
    assert_int_equal(env_open(e, "vol-00000000000000001", OTHER, &d2, &err), -EBUSY);
    assert_int_equal(test_disk_read(&d, 4096, got, sizeof(got)), 0);
    assert_int_equal(d.n_reconnects, 0);
    /* a deletion waits for the holder */
    v.want = STR("deleted");
    v.generation = 3;
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000001", "deleting");
    usleep(300000);
    assert_int_equal(env_count(e, "volumes"), 1);
    test_disk_close(&d);
    env_wait_volume(e, "vol-00000000000000001", "deleted");
    assert_int_equal(env_count(e, "volumes"), 0);
    for (int i = 0; i < 2000 && env_n_processes(e) > 0; i++) {
        usleep(5000);
    }
    assert_int_equal(env_n_processes(e), 0);
}

/* A volume that was there and is not any more is an error, never a new empty one. */
static void lost_bytes_are_an_error(void **state)
{
    struct env *e = *state;
    struct volume v = volume("vol-00000000000000001", 1);
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000001", "available");
    v = volume("vol-00000000000000002", 1);
    env_put_volume(e, &v);
    env_wait_volume(e, "vol-00000000000000002", "available");
    env_stop(e);
    sh(e->data, "rm -r volumes/vol-00000000000000001; : >volumes/vol-00000000000000002/data");
    env_start(e);
    assert_non_null(
        strstr(env_wait_volume(e, "vol-00000000000000001", "error")->reason.p, "gone"));
    assert_non_null(
        strstr(env_wait_volume(e, "vol-00000000000000002", "error")->reason.p, "bytes"));
    assert_int_equal(access(path_of(e, "volumes", "vol-00000000000000001", "data"), F_OK), -1);
}

/* A kill between publishing an image and telling the store, before and after the store knew. */
static void unregistered_images_are_settled(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], known[32], text[PATH_MAX];
    make_disk(tmpdir_path(&tmp, "disk.raw", disk), 1);
    assert_int_equal(env_import(e, disk, "known", "", known, &err), 0);
    env_stop(e);
    snprintf(text, sizeof(text),
             "cd images; cp -r %s ami-00000000000000001; cp -r %s ami-00000000000000002; touch "
             "%s/unregistered ami-00000000000000001/unregistered; "
             "mkdir .tmp-ami-00000000000000003; touch .tmp-ami-00000000000000003/data; cp -r "
             "%s ../trash/ami-00000000000000004.x",
             known, known, known, known);
    sh(e->data, text);
    env_start(e);
    assert_int_equal(access(path_of(e, "images", known, "unregistered"), F_OK), -1);
    assert_true(same_bytes(disk, path_of(e, "images", known, "data")));
    assert_int_equal(access(path_of(e, "images", "ami-00000000000000001", "data"), F_OK), -1);
    /* Without the mark it was whole once: the store may have been put back to an older state,
     * so a person decides. */
    assert_int_equal(access(path_of(e, "images", "ami-00000000000000002", "data"), F_OK), 0);
    assert_int_equal(env_count(e, "images"), 2);
    assert_int_equal(env_count(e, "trash"), 0);
}

static void many_at_once(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32], vol[40];
    tmpdir_path(&tmp, "disk.raw", disk);
    make_disk(disk, 8);
    assert_int_equal(env_import(e, disk, "img", "", id, &err), 0);
    for (int i = 0; i < 40; i++) {
        snprintf(vol, sizeof(vol), "vol-%017d", i);
        struct volume v = volume(vol, 1);
        v.image_id = i % 2 ? str_c(id) : STR("");
        env_put_volume(e, &v);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(vol, sizeof(vol), "vol-%017d", i);
        env_wait_volume(e, vol, "available");
        if (i % 8 == 1) {
            env_volume_equals(e, vol, INST, disk);
        }
    }
    assert_int_equal(env_count(e, "volumes"), 40);
}

/* Whoever asked goes away in the middle: the half-made image goes too, and its name is free. */
static void gone_client_cancels(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    int p[2];
    char id[32], disk[PATH_MAX];
    struct rpc_reply r;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    struct rpc_client *c = rpc_client_new(e->socket, NULL, NULL);
    assert_int_equal(rpc_call(c, STR("image.import"),
                              STR("{\"account\":\"" TEST_ACCOUNT "\",\"name\":\"slow\"}"),
                              &p[0], 1, NS_PER_S / 2, &r, &err),
                     -ETIMEDOUT);
    for (int i = 0; i < 2000 && env_count(e, "images") == 0; i++) {
        usleep(10000);
    }
    assert_int_equal(env_count(e, "images"), 1);
    rpc_client_free(c);
    close(p[0]);
    for (int i = 0; i < 1000 && env_count(e, "images") > 0; i++) {
        usleep(10000);
    }
    assert_int_equal(env_count(e, "images"), 0);
    close(p[1]);
    tmpdir_path(&tmp, "disk.raw", disk);
    make_disk(disk, 1);
    assert_int_equal(env_import(e, disk, "slow", "", id, &err), 0);
}

static void second_service_is_refused(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    struct vb *vb = NULL;
    struct loop *l = loop_new();
    char sock[PATH_MAX];
    struct vb_opts o = {.kv = e->kv,
                        .loop = l,
                        .data_dir = e->data,
                        .socket_path = tmpdir_path(&tmp, "2.sock", sock),
                        .node = "node1",
                        .helper = "/bin/false",
                        .data_exe = "/bin/false",
                        .run_dir = e->run};
    assert_int_equal(vb_new(&o, &vb, &err), -EBUSY);
    assert_string_equal(err.name, "FolderInUse");
    loop_free(l);
}

/* --- kill -9 and full disks: in a child
 * ------------------------------------------------------ */

/* Imports and clones until it is killed. */
static void victim(const char *dir)
{
    struct env e;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32], vol[40];
    env_init(&e, dir);
    env_start(&e);
    snprintf(disk, sizeof(disk), "%s/disk.raw", dir);
    for (int i = 0;; i++) {
        char name[40];
        snprintf(name, sizeof(name), "image %d %d", getpid(), i);
        err_clear(&err);
        if (env_import(&e, disk, name, "", id, &err) != 0) {
            _exit(3);
        }
        for (int k = 0; k < 3; k++) {
            snprintf(vol, sizeof(vol), "vol-%010d%07d", getpid(), i * 3 + k);
            struct volume v = volume(vol, 1);
            v.image_id = arena_str_dup(e.a, str_c(id));
            env_put_volume(&e, &v);
        }
        arena_reset(e.a);
    }
}

static void check_after_kill(const char *dir)
{
    struct env e;
    char disk[PATH_MAX];
    struct kv_list l;
    struct err err = ERR_INIT;
    env_init(&e, dir);
    env_start(&e);
    snprintf(disk, sizeof(disk), "%s/disk.raw", dir);
    assert_int_equal(kv_list(e.kv, e.a, STR("spec/volume/"), STR_NONE, 0, &l, &err), 0);
    size_t n_volumes = l.n;
    for (size_t i = 0; i < l.n; i++) {
        struct key_parts k;
        assert_int_equal(key_parse(l.v[i].key, &k), 0);
        const char *id = arena_cstr(e.a, k.id);
        env_wait_volume(&e, id, "available");
        if (i < 3) {
            env_volume_equals(&e, id, INST, disk);
        }
    }
    assert_int_equal(env_count(&e, "volumes"), n_volumes);
    assert_int_equal(kv_list(e.kv, e.a, STR("spec/image/"), STR_NONE, 0, &l, &err), 0);
    assert_int_equal(env_count(&e, "images"),
                     l.n); /* each has its folder, nothing else is there */
    assert_int_equal(env_count(&e, "trash"), 0);
    size_t n_images = l.n;
    for (size_t i = 0; i < n_images; i++) {
        struct key_parts k;
        assert_int_equal(key_parse(l.v[i].key, &k), 0);
        const char *id = arena_cstr(e.a, k.id);
        assert_true(same_bytes(disk, path_of(&e, "images", id, "data")));
        assert_int_equal(access(path_of(&e, "images", id, "unregistered"), F_OK), -1);
    }
    assert_int_equal(kv_list(e.kv, e.a, STR("claim/imagename/"), STR_NONE, 0, &l, &err), 0);
    assert_int_equal(l.n, n_images);
    env_stop(&e);
    env_end_processes(&e); /* none is left behind that holds on to the test's output */
}

static void killed_at_random_points(void **state)
{
    struct tmpdir t;
    char disk[PATH_MAX];
    unsigned seed = (unsigned)getpid();
    (void)state;
    tmpdir_init(&t, "vbkill");
    make_disk(tmpdir_path(&t, "disk.raw", disk), 16);
    for (int round = 0; round < 8; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            victim(t.path);
        }
        assert_true(pid > 0);
        usleep(150000 + (useconds_t)(rand_r(&seed) % 700000));
        kill(pid, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status)); /* it did not end by itself: its imports succeeded */
        check_after_kill(t.path);
    }
    tmpdir_done(&t);
}

static void full(const char *dir)
{
    struct env e;
    struct err err = ERR_INIT;
    char disk[PATH_MAX], id[32];
    env_init(&e, dir);
    if (mkdir(e.data, 0700) != 0 || mount("none", e.data, "tmpfs", 0, "size=24m") != 0) {
        _exit(77);
    }
    env_start(&e);
    snprintf(disk, sizeof(disk), "%s/disk.raw", dir);
    sh(dir, "head -c 9000000 /dev/urandom >disk.raw; printf '\\125\\252' | dd of=disk.raw bs=1 "
            "seek=510 conv=notrunc status=none");
    assert_int_equal(env_import(&e, disk, "fits", "", id, &err), 0);
    /* a second one does not fit beside a first clone: refused, nothing half-made */
    struct volume v = volume("vol-00000000000000001", 1);
    v.image_id = str_c(id);
    env_put_volume(&e, &v);
    env_wait_volume(&e, "vol-00000000000000001", "available");
    char id2[32];
    sh(e.data, "head -c 9000000 /dev/urandom >ballast");
    assert_int_equal(env_import(&e, disk, "does not fit", "", id2, &err), -ENOSPC);
    assert_string_equal(err.name, "DiskFull");
    assert_int_equal(env_count(&e, "images"), 1);
    /* a volume that reads through its image takes no room; one more byte than there is does */
    sh(e.data, "head -c 9000000 /dev/urandom >more || true");
    v.id = STR("vol-00000000000000002");
    env_put_volume(&e, &v);
    assert_non_null(
        strstr(env_wait_volume(&e, "vol-00000000000000002", "error")->reason.p, "room"));
    assert_int_equal(env_count(&e, "volumes"), 1);
    sh(e.data, "rm more");
    /* a packed image that unpacks to more than there is */
    sh(dir, "gzip -c disk.raw >a.gz; cat disk.raw disk.raw | gzip -1 >big.gz");
    char big[PATH_MAX];
    snprintf(big, sizeof(big), "%s/big.gz", dir);
    err_clear(&err);
    assert_int_equal(env_import(&e, big, "big", "", id2, &err), -ENOSPC);
    assert_int_equal(env_count(&e, "images"), 1);
    /* others go on; room that is given back is used */
    sh(e.data, "rm ballast");
    v = volume("vol-00000000000000003", 1);
    v.image_id = str_c(id);
    env_put_volume(&e, &v);
    env_wait_volume(&e, "vol-00000000000000003", "available");
    env_stop(&e);
}

static void full_disk(void **state)
{
    struct tmpdir t;
    (void)state;
    tmpdir_init(&t, "vbfull");
    pid_t pid = fork();
    if (pid == 0) { /* mounts of its own: they end with it */
        if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
            (geteuid() == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)) {
            _exit(77);
        }
        full(t.path);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    tmpdir_done(&t);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(empty_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_volumes, setup, teardown),
        cmocka_unit_test_setup_teardown(import_registers, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_imports, setup, teardown),
        cmocka_unit_test_setup_teardown(clones_and_removal, setup, teardown),
        cmocka_unit_test_setup_teardown(open_is_exclusive, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_bytes_are_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(unregistered_images_are_settled, setup, teardown),
        cmocka_unit_test_setup_teardown(many_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(gone_client_cancels, setup, teardown),
        cmocka_unit_test_setup_teardown(second_service_is_refused, setup, teardown),
        cmocka_unit_test(killed_at_random_points),
        cmocka_unit_test(full_disk),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: vb_test SPX-VIPERBLOCK-IMPORT SPX-VIPERBLOCK-DATA\n");
        return 2;
    }
    env_helper(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
